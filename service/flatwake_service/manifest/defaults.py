"""Every default that the manifest and `flatwake serve` share, once.

A default never changes within v1alpha1: pins hash what differs from it, so a change here would
roll every server on an operator upgrade.
"""

from typing import Final

SERVE_PORT: Final = 8000
"""The port that pods listen on, whatever the Service's own."""
MAX_SEQUENCES: Final = 8
MAX_SEQUENCES_LIMIT: Final = 64
PREFILL_TOKENS: Final = 512
PREFILL_GRAIN: Final = 64
QUEUE: Final = 64
QUEUE_TIMEOUT: Final = "60s"
REQUEST_TIMEOUT: Final = "600s"
STEP_TIMEOUT: Final = "60s"
BODY_BYTES: Final = "4Mi"
STARTUP_TIMEOUT: Final = "10m"
CACHE_SIZE: Final = "20Gi"
RESOURCE: Final = "amd.com/gpu"
DEVICE_CLASS: Final = "gpu.amd.com"
RENDER_GROUPS: Final = (44, 104, 105, 106, 109, 110, 991, 992, 993)
"""Group ids that distributions give to `video` (44) and `render`."""
PROPAGATION_SECONDS: Final = 5
"""How long a draining server still takes requests, so that endpoints propagate."""
GRACE_MARGIN_SECONDS: Final = 15
"""What the grace period leaves a server after its drain, to close and to exit."""
MEMORY_FRACTION_DEVICE: Final = 0.9
MEMORY_FRACTION_CPU: Final = 0.5
PICKER_PORT: Final = 9002
"""Where the inference extension's endpoint picker listens unless told otherwise."""
CPU_TARGET_PERCENT: Final = 80
QUEUE_TARGET_SHARE: Final = 0.75
"""The autoscaler's default target: this share of maxSequences in flight a pod."""
