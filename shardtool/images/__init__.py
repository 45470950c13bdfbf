"""What generating needs besides a model, without torch: prompts, seeds, names, metadata, ledger, replay, gallery.

::

    request     everything a run is asked, in groups that mean something
    plan        what a run will make, and with what
    layers      flag > replayed image > environment > config file > default, for every option
    settings    what one picture looks like: Settings, and a Job that has a seed and a name too
    jobs        prompts and seeds to jobs
    prompts     prompts from the command line, files and standard input
    seeds       lists, ranges and random seeds
    schedulers  short names of diffusers' schedulers
    inputs      the images that a picture starts from
    model       which pipeline a run uses, and what its configs say of sizes
    resolve     the model's sources to local folders
    identity    one fingerprint for each component's weights
    tokens      how long a prompt is for the model's tokenizers
    outputs     where images go: file, folder, template
    files       an image with its metadata in one file, written whole or not at all
    record      the JSON of an image: settings, model, environment, hash of the pixels
    parameters  the text that A1111 and many others write and read
    reading     the settings out of an image: ours, A1111's, InvokeAI's (invokeai), ComfyUI's (comfyui)
    ledger      what a run has finished, so that the next one goes on
    finished    which pictures of a plan are there already
    replay      whether an image is what it was before, and what differs
    contact     the contact sheet
    gallery     one HTML page to look through a run
    companions  both, for the images of one run
"""
