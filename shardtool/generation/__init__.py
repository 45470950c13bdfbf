"""Pictures from a built pipeline: the modules that need torch. Everything that does not is in ``shardtool.images``.

::

    run          carry out a plan: build, make, write with metadata
    studio       one picture after the other, and what is kept between them
    encoding     prompts to embeddings
    denoising    embeddings and a seed to latents, with diffusers' own pipelines
    decoding     latents to pixels, checked
    environment  what pixels can depend on besides model and settings
"""
