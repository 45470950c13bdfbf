"""An image with its metadata in one file, written whole or not at all.

=====  =========================  ==================================  =================
format A1111's text               our JSON                            "made by AI" mark
=====  =========================  ==================================  =================
PNG    text chunk ``parameters``  iTXt chunk ``shardtool``            XMP packet
JPEG   EXIF ``UserComment``       XMP, ``shardtool:record``           XMP packet
WebP   EXIF ``UserComment``       XMP, ``shardtool:record``           XMP packet
=====  =========================  ==================================  =================

The mark is IPTC's ``DigitalSourceType``: https://cv.iptc.org/newscodes/digitalsourcetype/.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final
from xml.sax.saxutils import escape

from shardtool import __version__
from shardtool.errors import RefusedError, RunError
from shardtool.images.outputs import ImageFormat

if TYPE_CHECKING:
    from PIL import Image

IPTC: Final = "http://cv.iptc.org/newscodes/digitalsourcetype/"
MADE_BY_AI: Final = IPTC + "trainedAlgorithmicMedia"
MADE_FROM_IMAGE: Final = IPTC + "compositeWithTrainedAlgorithmicMedia"
NAMESPACE: Final = "urn:shardtool:image:1#"
JPEG_QUALITY: Final = 95
WEBP_QUALITY: Final = 95

_QUOTE: Final = {'"': "&quot;"}
_JPEG_LIMIT: Final = 65_000
"""Bytes; a segment of a JPEG holds 65,533 with its own head."""

_XMP: Final = (
    '<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>'
    '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
    '<rdf:Description rdf:about="" xmlns:Iptc4xmpExt="http://iptc.org/std/Iptc4xmpExt/2008-02-29/"'
    ' xmlns:xmp="http://ns.adobe.com/xap/1.0/"{namespace} Iptc4xmpExt:DigitalSourceType="{mark}"'
    ' xmp:CreatorTool="{tool}"{record}/></rdf:RDF></x:xmpmeta><?xpacket end="w"?>'
)


def encode_image(
    image: Image.Image, kind: ImageFormat, record: Mapping[str, Any] | None = None, parameters: str | None = None
) -> bytes:
    """The bytes of an image file; without ``record`` it holds no metadata at all."""
    buffer = io.BytesIO()
    if kind == "png":
        image.save(buffer, "PNG", pnginfo=_png_chunks(record, parameters) if record else None)
        return buffer.getvalue()
    options: dict[str, Any] = {}
    if record:
        options["xmp"] = _xmp(record, embed=True).encode()
        exif = image.getexif()
        exif.get_ifd(0x8769)[0x9286] = b"UNICODE\0" + (parameters or "").encode("utf-16-be", "replace")
        options["exif"] = exif.tobytes()
    if kind == "jpg":
        if any(len(value) > _JPEG_LIMIT for value in options.values()):
            raise RunError(
                "the metadata do not fit into a JPEG (64 kB)",
                code="metadata_too_long",
                hint="use --format png or webp, or --metadata none",
            )
        image.save(buffer, "JPEG", quality=JPEG_QUALITY, subsampling=0, **options)
    else:
        image.save(buffer, "WEBP", quality=WEBP_QUALITY, **options)
    return buffer.getvalue()


def _png_chunks(record: Mapping[str, Any], parameters: str | None) -> Any:
    from PIL.PngImagePlugin import PngInfo

    chunks = PngInfo()
    if parameters is not None:
        # add_text writes Latin-1 as tEXt, which every reader knows, and anything else as iTXt.
        chunks.add_text("parameters", parameters.encode("utf-8", "replace").decode("utf-8"))
    chunks.add_itxt("shardtool", json.dumps(record, ensure_ascii=True))
    chunks.add_itxt("XML:com.adobe.xmp", _xmp(record, embed=False))
    return chunks


def _xmp(record: Mapping[str, Any], *, embed: bool) -> str:
    mark = MADE_FROM_IMAGE if "inputs" in record else MADE_BY_AI
    attribute = f' shardtool:record="{escape(json.dumps(record), _QUOTE)}"' if embed else ""
    namespace = f' xmlns:shardtool="{NAMESPACE}"' if embed else ""
    return _XMP.format(mark=mark, tool=f"shardtool {__version__}", record=attribute, namespace=namespace)


def write_whole(path: Path, data: bytes, *, overwrite: bool) -> None:
    """Put ``data`` at ``path`` at once: a reader sees the old file, no file or the whole new one.

    What a killed run leaves is ``.NAME.partial``, which the next run that makes ``NAME`` takes over. Raises
    ``RefusedError`` where ``path`` exists and ``overwrite`` is not set (another run may have come first) or another
    run is writing it, and ``RunError`` where it cannot be written.
    """
    temporary = path.with_name(f".{path.name}.partial")
    try:
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True)
        with _opened_alone(temporary) as file:
            file.write(data)
            file.flush()
            try:
                _publish(temporary, path, overwrite=overwrite)
            finally:
                temporary.unlink(missing_ok=True)
    except FileExistsError as error:
        if not path.exists():
            raise _unwritable(path, error) from error
        raise RefusedError(
            f"{path} exists", code="target_exists", path=path, hint="--overwrite replaces it; -o names another place"
        ) from error
    except BlockingIOError as error:
        raise RefusedError(f"{path}: another run is writing it", code="target_busy", path=path) from error
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> RunError:
    return RunError(f"{path}: cannot be written: {error.strerror or error}", code="write_failed", path=path)


def _opened_alone(path: Path) -> IO[bytes]:
    """The empty file ``path``, locked. ``BlockingIOError`` where another process has it."""
    file = path.open("a+b")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(file.fileno()), path.stat()):
            raise BlockingIOError(11, "replaced meanwhile")
        file.truncate(0)
    except FileNotFoundError as error:
        file.close()
        raise BlockingIOError(11, "published meanwhile") from error
    except OSError:
        file.close()
        raise
    return file


def _publish(temporary: Path, path: Path, *, overwrite: bool) -> None:
    if overwrite:
        temporary.replace(path)
        return
    try:
        os.link(temporary, path)  # fails where the target exists, which a rename would replace
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if path.exists():
            raise FileExistsError(17, "exists", str(path)) from None
        temporary.replace(path)
