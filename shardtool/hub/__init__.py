"""Sources on the Hub: the only importer of huggingface_hub.

::

    listing.py    which files a repo has at a revision, with their sizes
    fetch.py      the files that are needed, downloaded into the Hub's cache or found there
    download.py   several files at once, with progress
    cache.py      the layout of the Hub's cache, read without the network
    remote.py     structure without weights: of all that is there, or of what would be downloaded
    sketch.py     small files and headers by range requests, the rest as holes
    structure.py  which files have to be looked at for that
    naming.py     what was found there, named as on the Hub
    trouble.py    what the Hub or the network says no to, in our words

The token comes from the environment or the Hub's own login, never from an option of ours.
"""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from shardtool.errors import HubError


def _check_endpoint() -> None:
    """The client takes HF_ENDPOINT apart when it is imported, and fails there without a word about it."""
    endpoint = os.environ.get("HF_ENDPOINT", "")
    try:
        _ = urlsplit(endpoint).port
    except ValueError as error:
        message = f"HF_ENDPOINT={endpoint} is no address: {error}"
        raise HubError(message, code="not_a_hub", hint="unset it for huggingface.co") from error


_check_endpoint()
