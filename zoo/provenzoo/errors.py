"""What a user is told when something is wrong: one or two lines, what, where and what to do."""


class ZooError(Exception):
    """A recipe, a file or a run that cannot go on; the command ends with exit code 1."""


class UsageError(ZooError):
    """The words of a command are off (a name, an override, an option); exit code 2."""
