"""The closed sets of words in a manifest."""

from enum import StrEnum


class Backend(StrEnum):
    AUTO = "Auto"
    HIP = "Hip"
    CPU = "Cpu"


class Architecture(StrEnum):
    GFX906 = "gfx906"
    GFX908 = "gfx908"
    GFX90A = "gfx90a"
    GFX942 = "gfx942"
    GFX950 = "gfx950"
    GFX1030 = "gfx1030"
    GFX1100 = "gfx1100"
    GFX1151 = "gfx1151"
    GFX1200 = "gfx1200"
    GFX1201 = "gfx1201"


class KvDtype(StrEnum):
    AUTO = "Auto"
    FLOAT16 = "Float16"
    BFLOAT16 = "BFloat16"
    FLOAT32 = "Float32"


class Graphs(StrEnum):
    AUTO = "Auto"
    ON = "On"
    OFF = "Off"


class Metric(StrEnum):
    QUEUE = "Queue"
    CPU = "Cpu"


class Strategy(StrEnum):
    AUTO = "Auto"
    SURGE = "Surge"
    REPLACE = "Replace"


class ServiceType(StrEnum):
    CLUSTER_IP = "ClusterIP"
    NODE_PORT = "NodePort"
    LOAD_BALANCER = "LoadBalancer"


class AccessMode(StrEnum):
    READ_WRITE_ONCE = "ReadWriteOnce"
    READ_WRITE_MANY = "ReadWriteMany"
    READ_WRITE_ONCE_POD = "ReadWriteOncePod"
