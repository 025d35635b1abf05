"""Trackers: where the metrics of iterations go, behind one small protocol."""

from plexrl.trackers.json_lines import JsonLinesTracker
from plexrl.trackers.libraries import (
    MLflowTracker,
    TensorBoardTracker,
    TrackioTracker,
    WandbTracker,
)
from plexrl.trackers.protocol import Tracker
from plexrl.trackers.tracker_set import (
    TrackerSet,
    check_trackers,
    missing_library,
    open_trackers,
)

__all__ = [
    "JsonLinesTracker",
    "MLflowTracker",
    "TensorBoardTracker",
    "Tracker",
    "TrackerSet",
    "TrackioTracker",
    "WandbTracker",
    "check_trackers",
    "missing_library",
    "open_trackers",
]
