"""What `provenzoo new` copies: `my-skeleton`, `my_skeleton` and `MySkeleton` become the name that is asked for."""
