"""KubeRay's custom resources (ray.io/v1), closed to unknown keys; pods by the Kubernetes client's models."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from loomrl.cluster.pod import matches
from loomrl.config.basic import PositiveInt
from loomrl.schema import Config

Count = Annotated[int, Field(ge=0)]
Free = dict[str, Any]
Template = Annotated[Free, AfterValidator(lambda raw: matches("V1PodTemplateSpec", raw))]
Service = Annotated[Free, AfterValidator(lambda raw: matches("V1Service", raw))]
Meta = Annotated[Free, AfterValidator(lambda raw: matches("V1ObjectMeta", raw))]


class Auth(Config):
    """Authentication of callers."""

    mode: Literal["disabled", "token"] = "token"
    secretName: str | None = None
    enableK8sTokenAuth: bool = False


class Autoscaler(Config):
    """The sidecar that starts and ends workers."""

    version: Literal["v1", "v2"] | None = None
    upscalingMode: Literal["Default", "Aggressive", "Conservative"] = "Default"
    idleTimeoutSeconds: Count = 60
    image: str | None = None
    imagePullPolicy: str | None = None
    resources: Annotated[Free, AfterValidator(lambda raw: matches("V1ResourceRequirements", raw))] = Field(
        default_factory=dict
    )
    env: list[Annotated[Free, AfterValidator(lambda raw: matches("V1EnvVar", raw))]] = Field(default_factory=list)
    envFrom: list[Annotated[Free, AfterValidator(lambda raw: matches("V1EnvFromSource", raw))]] = Field(
        default_factory=list
    )
    volumeMounts: list[Annotated[Free, AfterValidator(lambda raw: matches("V1VolumeMount", raw))]] = Field(
        default_factory=list
    )
    securityContext: Annotated[Free, AfterValidator(lambda raw: matches("V1SecurityContext", raw))] = Field(
        default_factory=dict
    )
    args: list[str] = Field(default_factory=list)
    command: list[str] = Field(default_factory=list)


class FaultTolerance(Config):
    """Storage of the head's state."""

    backend: Literal["redis", "rocksdb"] = "redis"
    redisAddress: str | None = None
    redisUsername: Free = Field(default_factory=dict)
    redisPassword: Free = Field(default_factory=dict)
    externalStorageNamespace: str | None = None
    storage: Free = Field(default_factory=dict)


class Pods(Config):
    """The common part of head and workers."""

    rayStartParams: dict[str, str] = Field(default_factory=dict)
    template: Template
    labels: dict[str, str] = Field(default_factory=dict)
    resources: dict[str, str] = Field(default_factory=dict)


class Head(Pods):
    """The head."""

    serviceType: Literal["ClusterIP", "NodePort", "LoadBalancer"] | None = None
    headService: Service = Field(default_factory=dict)
    enableIngress: bool = False
    ingressOptions: Free = Field(default_factory=dict)


class Workers(Pods):
    """One group of workers."""

    groupName: str
    replicas: Count = 0
    minReplicas: Count = 0
    maxReplicas: Count
    numOfHosts: PositiveInt = 1
    idleTimeoutSeconds: Count | None = None
    priority: int = 0
    suspend: bool = False
    scaleStrategy: Free = Field(default_factory=dict)


class ClusterSpec(Config):
    """A whole cluster."""

    rayVersion: str
    headGroupSpec: Head
    workerGroupSpecs: list[Workers] = Field(default_factory=list)
    enableInTreeAutoscaling: bool = False
    autoscalerOptions: Autoscaler = Autoscaler()
    authOptions: Auth | None = None
    gcsFaultToleranceOptions: FaultTolerance | None = None
    suspend: bool = False
    managedBy: str | None = None
    headServiceAnnotations: dict[str, str] = Field(default_factory=dict)
    networkPolicy: Free = Field(default_factory=dict)
    tlsOptions: Free = Field(default_factory=dict)
    historyServerOptions: Free = Field(default_factory=dict)
    upgradeStrategy: Free = Field(default_factory=dict)


class JobSpec(Config):
    """A job, with the cluster that it creates or selects."""

    entrypoint: str
    rayClusterSpec: ClusterSpec | None = None
    clusterSelector: dict[str, str] = Field(default_factory=dict)
    runtimeEnvYAML: str = ""
    submissionMode: Literal["K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode"] = "K8sJobMode"
    submitterPodTemplate: Template = Field(default_factory=dict)
    submitterConfig: Free = Field(default_factory=dict)
    shutdownAfterJobFinishes: bool = False
    ttlSecondsAfterFinished: Count = 0
    activeDeadlineSeconds: PositiveInt | None = None
    preRunningDeadlineSeconds: PositiveInt | None = None
    backoffLimit: Count = 0
    deletionStrategy: Free = Field(default_factory=dict)
    entrypointNumCpus: float = 0
    entrypointNumGpus: float = 0
    entrypointResources: str = ""
    jobId: str | None = None
    metadata: dict[str, str] = Field(default_factory=dict)
    suspend: bool = False
    managedBy: str | None = None


class ServiceSpec(Config):
    """Ray Serve applications, with the cluster that they run on."""

    serveConfigV2: str
    rayClusterConfig: ClusterSpec
    serveService: Service = Field(default_factory=dict)
    upgradeStrategy: Free = Field(default_factory=dict)
    serviceUnhealthySecondThreshold: Count | None = None
    deploymentUnhealthySecondThreshold: Count | None = None
    excludeHeadPodFromServeSvc: bool = False
    rayClusterDeletionDelaySeconds: Count | None = None
    suspend: bool = False
    managedBy: str | None = None


class Resource(Config):
    """The common part of Kubernetes objects."""

    apiVersion: Literal["ray.io/v1"]
    metadata: Meta


class RayCluster(Resource):
    """`kind: RayCluster`."""

    kind: Literal["RayCluster"]
    spec: ClusterSpec


class RayJob(Resource):
    """`kind: RayJob`."""

    kind: Literal["RayJob"]
    spec: JobSpec


class RayService(Resource):
    """`kind: RayService`."""

    kind: Literal["RayService"]
    spec: ServiceSpec


KINDS: dict[str, type[RayCluster | RayJob | RayService]] = {
    "RayCluster": RayCluster,
    "RayJob": RayJob,
    "RayService": RayService,
}


def cluster_of(resource: RayCluster | RayJob | RayService) -> ClusterSpec | None:
    """Its cluster; None for a job that selects an existing one."""
    match resource:
        case RayCluster():
            return resource.spec
        case RayJob():
            return resource.spec.rayClusterSpec
        case RayService():
            return resource.spec.rayClusterConfig
