"""What users of PlexRL catch, grouped by what they do about it.

::

    PlexRLError
    ├── InputError              fix what you gave and try again (CLI: exit status 2)
    │   ├── JobFileError        a job file is malformed
    │   ├── ModelFolderError    a model folder is missing or unusable
    │   ├── JobError            the job cannot run here: name taken, bad pipeline, group too small
    │   └── ConfigError         a configuration value is wrong
    ├── StateError              states and stores: nothing acknowledged is lost
    │   ├── VersionFenceError   a train call does not follow the committed version
    │   ├── IntegrityError      bytes read back are not the bytes written
    │   ├── StoreError          the store cannot be used: full, foreign, newer, locked
    │   │   └── StoreAwayError  it cannot be used now; jobs wait for it and go on
    │   └── PressureError       no tier has room, and nothing may be dropped
    ├── ServiceError            the cluster side failed; the job goes back to its last version
    │   ├── EngineError         an engine answered with an error; trying again gives the same
    │   │   ├── EngineStoppedError  training nobody waits for ended in the middle
    │   │   └── EngineDiedError  an engine process died or hung; a new one goes on
    │   └── LeaseError          a function ran without its lease
    ├── TaskTimeoutError        a reward, tool or other task of a job ran for too long
    └── JobFailedError               a job ended without finishing; the message has the reason
"""

from __future__ import annotations


class PlexRLError(Exception):
    """Root of the tree; every message names the object, the value and the remedy."""

    kind = "plexrl"
    is_recoverable = False
    """Whether a job may go back to its last committed version and try again."""


class InputError(PlexRLError):
    """Something the user gave is wrong; nothing was started."""

    kind = "input"


class JobFileError(InputError):
    """A job file is malformed; the message gives the path inside the file."""

    kind = "job_file"


class ModelFolderError(InputError):
    """A model folder is missing, or holds no usable model."""

    kind = "model_folder"


class JobError(InputError):
    """The job cannot run on this cluster as it is described."""

    kind = "job"


class ConfigError(InputError):
    """A configuration value is of the wrong type or out of range."""

    kind = "config"


class StateError(PlexRLError):
    """A state could not be kept, read or moved."""

    kind = "state"


class VersionFenceError(StateError):
    """A train call names a version that is not the committed one."""

    kind = "version_fence"
    is_recoverable = True


class IntegrityError(StateError):
    """Bytes read back differ from the bytes written; they were quarantined, not used."""

    kind = "integrity"
    is_recoverable = True


class StoreError(StateError):
    """The store cannot be used: full, read-only, foreign, of a newer format, or claimed."""

    kind = "store"


class StoreAwayError(StoreError):
    """The store cannot be used right now: full, read-only, too slow, or not there."""

    kind = "store_away"
    is_recoverable = True


class PressureError(StateError):
    """No room in a tier, and nothing in it may be dropped."""

    kind = "pressure"


class ServiceError(PlexRLError):
    """The LLM service failed; jobs on it go back to their last committed version."""

    kind = "service"
    is_recoverable = True


class EngineError(ServiceError):
    """An engine answered with an error: same input, same error."""

    kind = "engine"
    is_recoverable = False


class EngineStoppedError(EngineError):
    """Training ended in the middle, since nobody waits for it; the state is the one before."""

    kind = "engine_stopped"
    is_recoverable = True


class EngineDiedError(EngineError):
    """An engine process died or hung; the next function starts a new one."""

    kind = "engine_died"
    is_recoverable = True


class LeaseError(ServiceError):
    """An LLM function ran without the lease of its group."""

    kind = "lease"


class TaskTimeoutError(PlexRLError):
    """An ordinary task of a job did not end within its limit."""

    kind = "task_timeout"


class JobFailedError(PlexRLError):
    """A job ended without finishing."""

    kind = "job_failed"
