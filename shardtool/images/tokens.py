"""How long a prompt is for the model's tokenizers, and which words would be cut off. Without torch or transformers.

The tokenizer is built by the ``tokenizers`` library from ``tokenizer.json``, or from ``vocab.json`` and ``merges.txt``
exactly as transformers builds its ``CLIPTokenizer`` (5.24).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from shardtool.checkpoint.files import read_whole
from shardtool.checkpoint.strict_json import read_json_object
from shardtool.errors import InputError, UsageError
from shardtool.events import Listener, Note
from shardtool.foreign_code import failing_as
from shardtool.images.settings import Job, Settings
from shardtool.part import Part
from shardtool.parts import PipelineParts

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_SPLIT: Final = r"""<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"""
_BEGIN, _END = "<|startoftext|>", "<|endoftext|>"
_VOCABULARY_LIMIT: Final = 100_000_000
_WORDS_SHOWN: Final = 40
_LETTERS_SHOWN: Final = 400


@dataclass(frozen=True)
class PromptLength:
    """One text for one tokenizer. ``tokens`` counts the begin and the end token; ``lost`` is what is cut off."""

    field: str
    tokens: int
    limit: int
    lost: str

    @property
    def is_long(self) -> bool:
        return self.tokens > self.limit


class PromptTokenizer:
    """The tokenizer in a component folder. ``limit`` is the most tokens it gives, begin and end included."""

    def __init__(self, folder: Path) -> None:
        """Raises ``InputError`` where the folder holds no CLIP tokenizer that can be built."""
        self.limit = read_limit(folder)
        self._folder = folder
        with failing_as(self._unusable):
            self._tokenizer = _build(folder)

    def vocabulary_with(self, padding: str | None) -> int:
        """One more than the largest number it gives to a token, ``padding`` included."""
        known = self._tokenizer.get_vocab()
        # transformers (5.24) adds a token that is not in the vocabulary at its end.
        new = padding is not None and padding not in known
        return max(known.values(), default=-1) + 1 + new

    def measure(self, field: str, text: str) -> PromptLength:
        """How long ``text`` is, and what of it is beyond the limit. Raises ``InputError`` where it cannot be read."""
        with failing_as(self._unusable):
            encoded = self._tokenizer.encode(text, add_special_tokens=False)
        tokens, room = len(encoded.ids) + 2, self.limit - 2
        lost = text[encoded.offsets[room][0] :] if len(encoded.ids) > room else ""
        return PromptLength(field, tokens, self.limit, lost.strip())

    def _unusable(self, reason: str) -> InputError:
        return InputError(
            f"{self._folder}: no usable tokenizer: {reason}",
            code="tokenizer_invalid",
            path=self._folder,
            hint="fetch that folder again",
        )


def read_limit(folder: Path) -> int:
    """The most tokens that the tokenizer in ``folder`` gives. Raises ``InputError`` where it does not say.

    transformers (5.24) then takes 10³⁰, and the pipeline, which fills every prompt up to the limit, fails.
    """
    path = folder / "tokenizer_config.json"
    limit = read_json_object(path, code="config_invalid").get("model_max_length") if path.exists() else None
    if type(limit) is not int or limit < 3:
        raise InputError(
            f"{path}: model_max_length is {limit!r:.80}, no length that prompts could be cut to",
            code="tokenizer_invalid",
            path=path,
            hint="fetch that folder again; CLIP's is 77",
        )
    return limit


def _read_padding(folder: Path) -> str | None:
    """The token that every prompt is filled up with, where the files beside the vocabulary name one."""
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        path = folder / name
        token = read_json_object(path, code="config_invalid").get("pad_token") if path.exists() else None
        token = token.get("content") if isinstance(token, dict) else token
        if isinstance(token, str):
            return token
    return None


def _build(folder: Path) -> Tokenizer:
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

    if (path := folder / "tokenizer.json").exists():
        tokenizer = Tokenizer.from_buffer(read_whole(path, limit=_VOCABULARY_LIMIT, code="tokenizer_invalid"))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer
    vocabulary = read_json_object(folder / "vocab.json", code="tokenizer_invalid", limit=_VOCABULARY_LIMIT)
    model = models.BPE(
        vocab=vocabulary,
        merges=_merges(folder / "merges.txt"),
        continuing_subword_prefix="",
        end_of_word_suffix="</w>",
        fuse_unk=False,
        unk_token=_END,
    )
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_SPLIT), behavior="removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.add_special_tokens([_BEGIN, _END])
    return tokenizer


def _merges(path: Path) -> list[tuple[str, str]]:
    try:
        lines = read_whole(path, limit=_VOCABULARY_LIMIT, code="tokenizer_invalid").decode().split("\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8", code="tokenizer_invalid", path=path) from error
    pairs = [tuple(line.split(" ")) for line in lines if line and not line.startswith("#version")]
    return [(pair[0], pair[1]) for pair in pairs if len(pair) == 2]


def read_tokenizers(parts: PipelineParts) -> tuple[PromptTokenizer, ...]:
    """The tokenizers of a pipeline, in the order of its text encoders; none for kinds that are not CLIP's.

    Raises ``InputError`` where one is damaged, or knows more tokens than its text encoder.
    """
    found: list[PromptTokenizer] = []
    seen: dict[tuple[bytes, int], PromptTokenizer] = {}
    for name in ("tokenizer", "tokenizer_2"):
        part = parts.parts.get(name)
        if part is None or not part.class_name.startswith("CLIPTokenizer"):
            continue
        # SDXL's two tokenizers differ in the padding alone, so the second is usually the first again.
        content = b"".join(
            read_whole(path, limit=_VOCABULARY_LIMIT, code="tokenizer_invalid")
            for file in ("tokenizer.json", "merges.txt", "vocab.json")
            if (path := part.folder / file).exists()
        )
        limit = read_limit(part.folder)
        if (content, limit) not in seen:
            seen[content, limit] = PromptTokenizer(part.folder)
        found.append(seen[content, limit])
        tokens = found[-1].vocabulary_with(_read_padding(part.folder))
        _check_vocabulary(part, tokens, parts.config(name.replace("tokenizer", "text_encoder", 1)))
    return tuple(found)


def _check_vocabulary(part: Part, tokens: int, encoder: Mapping[str, Any] | None) -> None:
    """A token beyond the encoder's embedding is an index error inside it, once a prompt has that token."""
    inner = (encoder or {}).get("text_config")
    known = (inner if isinstance(inner, Mapping) else encoder or {}).get("vocab_size")
    if type(known) is int and tokens > known:
        raise InputError(
            f"{part.folder}: this {part.name} has tokens up to number {tokens - 1:,}, its text encoder {known:,}",
            code="partner_mismatch",
            path=part.folder,
            hint="use a tokenizer and a text encoder that were made for each other",
        )


def measure_prompts(settings: Settings, tokenizers: Sequence[PromptTokenizer]) -> tuple[PromptLength, ...]:
    """The length of each text of a picture, for the tokenizer that reads it."""
    negative = settings.negative_prompt or ""
    texts: tuple[Mapping[str, str], ...] = (
        {"prompt": settings.prompt, "negative_prompt": negative},
        {
            "prompt_2": settings.prompt_2 or settings.prompt,
            "negative_prompt_2": settings.negative_prompt_2 or negative,
        },
    )
    measured: dict[Any, PromptLength] = {}
    for tokenizer, fields in zip(tokenizers, texts, strict=False):
        for field, text in fields.items():
            length = tokenizer.measure(field, text)
            measured.setdefault((text, length.tokens, length.limit), length)
    return tuple(length for length in measured.values() if length.tokens > 2)


def check_prompts(
    jobs: Sequence[Job],
    tokenizers: Sequence[PromptTokenizer],
    policy: Literal["warn", "error", "chunk"],
    on_event: Listener,
) -> dict[int, tuple[PromptLength, ...]]:
    """Measure the prompts of every job, by its index, and tell of what is too long.

    Raises ``UsageError`` for the first one that is too long if ``policy`` is ``error``.
    """
    told: set[PromptLength] = set()
    lengths: dict[int, tuple[PromptLength, ...]] = {}
    known: dict[Any, tuple[PromptLength, ...]] = {}
    for job in jobs:
        settings = job.settings
        texts = (settings.prompt, settings.prompt_2, settings.negative_prompt, settings.negative_prompt_2)
        if texts not in known:
            known[texts] = measure_prompts(settings, tokenizers)
        lengths[job.index] = known[texts]
        for length in known[texts]:
            if length.is_long and length not in told:
                told.add(length)
                _tell(length, policy, on_event)
    return lengths


def _tell(length: PromptLength, policy: str, on_event: Listener) -> None:
    words = length.lost.split()
    shown = f"{' '.join(words[:_WORDS_SHOWN]):.{_LETTERS_SHOWN}}"
    if len(words) > _WORDS_SHOWN:
        shown += f" … ({len(words) - _WORDS_SHOWN} more)"
    name = length.field.replace("_", " ")
    if policy == "chunk":
        windows = -(-(length.tokens - 2) // (length.limit - 2))
        text = f"{name}: {length.tokens} tokens, encoded in {windows} windows of {length.limit}"
        on_event(Note("prompt_long", text))
        return
    text = f'{name}: {length.tokens} tokens, {length.limit} used; lost: "{shown}"'
    if policy == "error":
        raise UsageError(text, code="prompt_long", hint="shorten it, or add --on-long-prompt chunk")
    on_event(Note("prompt_long", text, warning=True))
