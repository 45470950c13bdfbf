"""Sources on the Hub: the only importer of huggingface_hub.

::

    listing.py    which files a repo has at a revision, with their sizes
    fetch.py      the files that are needed, downloaded into the Hub's cache or found there
    download.py   several files at once, with progress
    cache.py      the layout of the Hub's cache, read without the network
    remote.py     structure without weights: small files and headers by range requests
    structure.py  which files have to be looked at for that
    trouble.py    what the Hub or the network says no to, in our words

The token comes from the environment or the Hub's own login, never from an option of ours.
"""
