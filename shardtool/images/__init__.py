"""What generating needs besides a model, without torch: prompts, seeds, names, metadata, ledger, replay, gallery.

::

    layers      flag > environment > config file > default, for every option
    settings    what one picture looks like: Settings, and a Job that has a seed and a name too
    prompts     prompts from the command line, files and standard input
    seeds       lists, ranges and random seeds
    schedulers  short names of diffusers' schedulers
    outputs     where images go: file, folder, template
    model       which pipeline a run uses, and what its configs say of sizes
    tokens      how long a prompt is for the model's tokenizers
    record      the JSON of an image: settings, model, environment, hash of the pixels
    parameters  the text that A1111 and many others write and read
    files       an image with its metadata in one file, written whole or not at all
    reading     the settings out of an image: ours, A1111's, InvokeAI's, ComfyUI's
    ledger      what a run has finished, so that the next one goes on
    replay      whether an image is what it was before, and what differs
    contact     the contact sheet
    gallery     one HTML page to look through a run
"""
