"""Images that lie in memory as bytes, a quarter of what they are as float32, and are normalised batch by batch."""

from collections.abc import Iterator

import torch
from torch import Tensor


class Packed:
    """Images `[N, C, H, W]` uint8 of values in [0, 1]; `mean` and `std` `[C, 1, 1]` float32 normalise them.

    A batch has the bits, on any device, of the same images in the whole set, normalised at once on the CPU: the
    divisors lie on the device as tensors, since CUDA multiplies by the reciprocal of a number.
    """

    def __init__(self, pixels: Tensor, mean: Tensor, std: Tensor, dtype: torch.dtype = torch.float32) -> None:
        self.pixels, self.dtype = pixels, dtype
        self._white = torch.tensor(255.0, device=pixels.device)
        self._mean, self._std = mean.to(pixels.device), std.to(pixels.device)

    @property
    def shape(self) -> torch.Size:
        """That of the images."""
        return self.pixels.shape

    @property
    def device(self) -> torch.device:
        """Where the images are, and the batches come."""
        return self.pixels.device

    @property
    def nbytes(self) -> int:
        """What is held."""
        return self.pixels.nbytes

    def __len__(self) -> int:
        return len(self.pixels)

    def to(self, device: torch.device | str, dtype: torch.dtype) -> "Packed":
        """The same on a device, whose batches come in a precision."""
        return Packed(self.pixels.to(device), self._mean, self._std, dtype)

    def unpack(self, pixels: Tensor) -> Tensor:
        """Some of the images, `[B, C, H, W]` uint8, normalised."""
        images = pixels.to(torch.float32).div_(self._white)
        return images.sub_(self._mean).div_(self._std).to(self.dtype)

    def whole(self) -> Tensor:
        """All images, normalised."""
        return self.unpack(self.pixels)

    def split(self, size: int, some: slice = slice(None)) -> Iterator[Tensor]:
        """Batches of `size` images, normalised, the last of what is left; `some` of them, without the others."""
        for pixels in self.pixels.split(size)[some]:
            yield self.unpack(pixels)
