r"""Where the plug-in has supported_activities, too."""

from .profiler import supported_activities as supported_activities
