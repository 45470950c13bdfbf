"""Pictures from a built pipeline: the modules that need torch, and those that call for them.

What has nothing to do with torch is in ``shardtool.images``.

::

    run          carry out a plan: what is left to make, and what goes beside it
    outcome      what comes of it
    making       the pipeline, this process's share, and what all have made
    processes    one process for each device: who makes what, and who speaks
    equipping    what is done to a pipeline first: LoRAs (loras), the VAE's economies, compilation
    series       one picture after the other
    studio       a picture, and what is kept from one to the next
    encoding     prompts to embeddings
    denoising    embeddings and a seed to latents, with diffusers' own pipelines
    decoding     latents to pixels, checked
    kept         a picture that was stopped half way, to go on with
    writing      finished pictures to files, and what goes beside them
    environment  what pixels can depend on besides model and settings
"""
