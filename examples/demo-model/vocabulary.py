"""The small byte-level BPE vocabulary of the two CLIP tokenizers, learnt from the captions."""

from __future__ import annotations

import json
from dataclasses import dataclass

from captions import AFTER, BEFORE, NOTHING
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import CLIPTokenizer

PROMPT_LENGTH = 32  # tokens, with the first and the last; 77 in the big models
SIZE = 1400
CLIP_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"  # as CLIPTokenizer splits


@dataclass(frozen=True)
class Vocabulary:
    """Token numbers and merges. The last two tokens are <|startoftext|> and <|endoftext|>.

    Merges of the same count come out in any order, so a vocabulary learnt again from the same captions numbers some
    tokens differently: it has to be kept with the embeddings.
    """

    ids: dict[str, int]
    merges: list[tuple[str, str]]

    def tokenizer(self) -> CLIPTokenizer:
        """A tokenizer of transformers with this vocabulary."""
        return CLIPTokenizer(vocab=self.ids, merges=self.merges, model_max_length=PROMPT_LENGTH)


def learn_vocabulary(names: list[list[str]]) -> Vocabulary:
    """The vocabulary for the names of the concepts and for the phrases around them."""
    bpe = Tokenizer(models.BPE(end_of_word_suffix="</w>"))
    bpe.normalizer = normalizers.Lowercase()
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(CLIP_WORDS), behavior="removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE,
        min_frequency=2,
        end_of_word_suffix="</w>",
        initial_alphabet=alphabet,
        show_progress=False,
    )
    corpus = [name for several in names for name in several] + BEFORE + AFTER + NOTHING
    bpe.train_from_iterator(corpus * 8, trainer)
    merges = [tuple(pair) for pair in json.loads(bpe.to_str())["model"]["merges"]]
    pieces = [*alphabet, *(letter + "</w>" for letter in alphabet), *(left + right for left, right in merges)]
    ids: dict[str, int] = {}
    for piece in [*pieces, "<|startoftext|>", "<|endoftext|>"]:
        ids.setdefault(piece, len(ids))
    return Vocabulary(ids, merges)
