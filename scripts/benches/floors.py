"""The least that a row's side has to do: operations (a product and a sum are two) and bytes, counted by hand.

Ours is at its floor where little but this is left to do; what is above it is Python, launches and copies.
"""

TEN = "ten times the operations; what is below 10 is overhead shared"
TOKENS = "12 C^2 + 2 N C operations against 10 C^2 + N C a token and block"
STUDENT = "X S and W(X S) forward, gradients in W, X S and S backward"

FLOORS = {
    "our loop / bare loop, MLP 32-64-10": (
        "a step: 3.1 MFLOP (256 points through 32-64-10, without the inputs' gradient); AdamW moves 7 x 11 kB"
    ),
    "our / bare loop with autograd, student of a graph convolution": (
        f"a step: 40,000 normal numbers, 1.2 MFLOP of the teacher, 2.8 of the student ({STUDENT}); N=100, d=M=10, D=20"
    ),
    "32 learning rates of a tiny student at once / one after another": (
        f"a step: 2,000 normal numbers once instead of 32 times, 32 x 0.12 MFLOP ({STUDENT}), N=10, d=M=5, D=20"
    ),
    "positional / vanilla ViT-Ti/16 at 224, training": f"{TOKENS}: at most 1.27",
    "positional / vanilla ViT-Ti/16 at 224, inference": "the same, scores once a checkpoint: at most 1.27",
    "positional / vanilla ViT-Ti/16 at 512, training": "the same with N = 1,025 tokens: at most 1.48",
    "positional / vanilla ViT-Ti/16 at 512, inference": "the same with N = 1,025 tokens: at most 1.48",
    "linear attention / dense tokens, 1 loop, training": (
        "forward, a prompt: 2 n d^2 for G once and 4 d^2 a loop, against about 2 (n+1)(d+1)(2 (d+1) + 2 (n+1)) a loop; "
        "n=20, d=10: 4.4 against 30 kFLOP at one loop, 8 against 296 at ten"
    ),
    "linear attention, ten seeds at once / one, batch 64": TEN,
    "patch-attention, D 64, batch 256: ten seeds / one": TEN,
    "load from the Hub's cache, checked before / timm, ViT-Ti/16": "22.9 MB mapped, none of it read, copied or drawn",
    "load from the Hub's cache, digest checked / timm, ViT-Ti/16": "22.9 MB read once, for SHA-256",
    "publish 100 MB to a local Hub / the raw client": "100 MB read and hashed by both, sent once",
    "sweep of 64 points on two Ray nodes / half of them in a warm worker, wall": "32 s of sleep on each of two cores",
}
