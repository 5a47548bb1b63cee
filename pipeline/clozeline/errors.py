"""Everything that clozeline raises on purpose.

    ClozelineError
    ├── ConfigError        options that are out of range, contradict each other, or are not known
    ├── InputError         a file, line, document or row of the input is not what it must be
    ├── TokenizerError     a tokenizer that cannot be used for this job
    ├── DestinationError   the output place is taken, locked, or holds other work
    ├── DataError          a data set on disk is damaged, foreign, or does not fit what it is used with
    ├── LedgerError        documents or tokens went missing: a fault of ours
    ├── JobError           a worker failed or died; names its shard
    └── Interrupted        stopped by a signal; the work so far can be resumed

A message says which file, document or row, what was found there, and what to do about it. All of them carry one string,
so that they survive the way back from a worker process.
"""


class ClozelineError(Exception):
    """Base of the errors above."""


class ConfigError(ClozelineError, ValueError):
    """Options that are out of range, contradict each other, or are not known."""


class InputError(ClozelineError):
    """A file, line, document or row of the input is not what it must be."""


class TokenizerError(ClozelineError):
    """A tokenizer that cannot be used for this job."""


class DestinationError(ClozelineError):
    """The output place is taken, locked, or holds other work."""


class DataError(ClozelineError):
    """A data set on disk is damaged, foreign, or does not fit what it is used with."""


class LedgerError(ClozelineError):
    """Documents or tokens went missing: a fault of clozeline itself."""


class JobError(ClozelineError):
    """A worker failed or died; the message names its shard."""


class Interrupted(ClozelineError):
    """Stopped by a signal; the work so far can be resumed."""
