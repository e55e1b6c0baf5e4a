"""The image decoders that may be installed, all with one result: RGB bytes, height x width x 3."""

from __future__ import annotations

import functools
import importlib.util
import io
from typing import Any

# In the order of preference: first what torchvision's own data sets use.
MODULES = {"pillow": "PIL", "opencv": "cv2", "simplejpeg": "simplejpeg"}
JPEG_SUFFIXES = frozenset({".jpg", ".jpeg", ".jpe", ".jfif"})
# What Pillow can decode and data sets are made of; of several frames the first is taken.
IMAGE_SUFFIXES = JPEG_SUFFIXES | {
    ".png", ".webp", ".tif", ".tiff", ".bmp", ".gif", ".jp2", ".ppm", ".pgm", ".avif",
}  # fmt: skip
# The only formats that Pillow may assume: left to itself it goes by the content, and for PostScript
# it runs a program on the contents of the file.
_PILLOW_FORMATS = ("JPEG", "PNG", "WEBP", "TIFF", "BMP", "GIF", "JPEG2000", "PPM", "AVIF")


def installed() -> tuple[str, ...]:
    """Return the decoders that can be used here; all of them give numpy arrays."""
    if importlib.util.find_spec("numpy") is None:
        return ()
    found = tuple(name for name, module in MODULES.items() if importlib.util.find_spec(module))
    return found if found != ("simplejpeg",) else ()  # which cannot resize


def quiet_threads() -> None:
    """Keep OpenCV to the calling thread, as every worker of a loader should."""
    if importlib.util.find_spec("cv2") is not None:
        _opencv()


@functools.cache
def _opencv() -> Any:
    """Return OpenCV, limited to one thread even in workers that are not forked."""
    import cv2

    cv2.setNumThreads(0)
    return cv2


def decode(data: bytes, decoder: str) -> Any:
    """Return the image in ``data``; raise ``ValueError`` or ``OSError`` if it is none."""
    if decoder == "simplejpeg":
        import simplejpeg

        return simplejpeg.decode_jpeg(data)
    import numpy as np

    if decoder == "opencv":
        cv2 = _opencv()
        try:
            image = cv2.imdecode(np.frombuffer(data, dtype=np.uint8), cv2.IMREAD_COLOR)
        except cv2.error:  # an empty file, or more pixels than OpenCV takes
            image = None
        if image is None:
            raise ValueError("OpenCV cannot decode it")
        return cv2.cvtColor(image, cv2.COLOR_BGR2RGB)
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(data), formats=_pillow_formats()) as opened:
            return np.asarray(opened.convert("RGB"))
    except UnidentifiedImageError:  # its text names the buffer
        raise ValueError("Pillow cannot identify it as an image") from None
    except (OSError, ValueError, MemoryError):
        raise
    except Exception as error:  # for a broken file any: SyntaxError, a bomb's, struct.error
        raise ValueError(str(error) or type(error).__name__) from None


@functools.cache
def _pillow_formats() -> tuple[str, ...]:
    """Return those formats that this Pillow has; it raises KeyError for any other."""
    from PIL import Image

    Image.init()
    return tuple(name for name in _PILLOW_FORMATS if name in Image.OPEN)


def is_picture(array: Any) -> bool:
    """Return whether an array is like what ``decode`` returns: resizing others may raise any."""
    rgb = array.ndim == 3 and array.shape[2] == 3 and array.dtype == "uint8"
    return bool(rgb and array.size)


def resize(image: Any, side: int, decoder: str) -> Any:
    """Return the image as float32, 3 x side x side, between 0 and 1.

    It is resized by the library that decoded it or, if that cannot, by OpenCV, or else Pillow.
    """
    import numpy as np

    if decoder == "pillow":
        from PIL import Image

        small = np.asarray(Image.fromarray(image).resize((side, side), Image.Resampling.BILINEAR))
    elif "opencv" in installed():
        cv2 = _opencv()
        small = cv2.resize(image, (side, side), interpolation=cv2.INTER_LINEAR)
    else:
        return resize(image, side, "pillow")
    channels_first = np.ascontiguousarray(small.transpose(2, 0, 1))
    return channels_first.astype(np.float32) / np.float32(255)


def encode(image: Any, form: str) -> bytes:
    """Return an image in another form: ``png``, ``jpeg`` (quality 90) or ``npy``."""
    import numpy as np

    target = io.BytesIO()
    if form == "npy":
        np.save(target, image)
    else:
        from PIL import Image

        Image.fromarray(image).save(target, format=form, quality=90)
    return target.getvalue()
