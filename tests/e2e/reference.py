"""Reference logits: the fixture files, and how far a run is from them."""
import numpy as np


class Reference:
    """One sequence of a fixture: ids [n], and per position the 64 largest logits, 64 random ones, log-sum-exp of the vocabulary."""

    BY_POSITION = ("ids", "lse", "top_ids", "top_logits", "rand_logits")

    def __init__(self, **arrays):
        self.__dict__.update(arrays)

    def first(self, n):
        return Reference(**{key: a[:n] if key in self.BY_POSITION else a for key, a in self.__dict__.items()})

    def kl(self, logits):
        """KL(reference || logits) by position: over the 64 top ids, and one bucket that holds the rest."""
        x = logits.astype(np.float64)
        m = x.max(axis=1, keepdims=True)
        lse = (m + np.log(np.exp(x - m).sum(axis=1, keepdims=True)))[:, 0]
        lp = self.top_logits - self.lse[:, None]
        lq = np.take_along_axis(x, self.top_ids.astype(np.int64), axis=1) - lse[:, None]
        p, q = np.exp(lp), np.exp(lq)
        rest_p = np.maximum(1 - p.sum(axis=1), 1e-30)
        rest_q = np.maximum(1 - q.sum(axis=1), 1e-30)
        return (p * (lp - lq)).sum(axis=1) + rest_p * (np.log(rest_p) - np.log(rest_q))

    def largest_difference(self, logits):
        top = np.take_along_axis(logits, self.top_ids.astype(np.int64), axis=1)
        return max(np.abs(top - self.top_logits).max(), np.abs(logits[:, self.rand_ids] - self.rand_logits).max())

    def same_top(self, logits):
        """By position: whether the largest logit is at the reference's largest."""
        return logits.argmax(axis=1) == self.top_ids[:, 0]

    def clear_margin(self, least):
        """By position: whether the reference's two best are at least that far apart."""
        return self.top_logits[:, 0] - self.top_logits[:, 1] > least


def references(path):
    archive = np.load(path)
    names = sorted({key.split(".")[0] for key in archive.files})
    keys = (*Reference.BY_POSITION, "rand_ids")
    return {name: Reference(**{key: archive[f"{name}.{key}"] for key in keys}) for name in names}
