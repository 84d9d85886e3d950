package main

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	vpa_types "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/logic"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/model"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/routines"
)

const (
	namespace = "default"
	day       = 24 * time.Hour
)

var vpaID = model.VpaID{Namespace: namespace, VpaName: "web"}

// Settings are flags of the recommender, by our names.
type Settings struct {
	TargetCPUPercentile              float64 `json:"targetCPUPercentile"`
	TargetMemoryPercentile           float64 `json:"targetMemoryPercentile"`
	LowerBoundPercentile             float64 `json:"lowerBoundPercentile"`
	UpperBoundPercentile             float64 `json:"upperBoundPercentile"`
	SafetyMarginFraction             float64 `json:"safetyMarginFraction"`
	CPUHalfLifeSeconds               int64   `json:"cpuHalfLifeSeconds"`
	MemoryHalfLifeSeconds            int64   `json:"memoryHalfLifeSeconds"`
	MemoryAggregationIntervalSeconds int64   `json:"memoryAggregationIntervalSeconds"`
	OomBumpUpRatio                   float64 `json:"oomBumpUpRatio"`
	OomMinBumpUpBytes                float64 `json:"oomMinBumpUpBytes"`
	PodMinCPUMillicores              float64 `json:"podMinCPUMillicores"`
	PodMinMemoryMb                   float64 `json:"podMinMemoryMb"`
}

// Pod is a pod that the autoscaler's object selects.
type Pod struct {
	UID        string            `json:"uid"`
	Labels     map[string]string `json:"labels"`
	Containers []v1.Container    `json:"containers"`
}

// Event is something that the recommender sees. Times are Unix seconds.
type Event struct {
	At int64 `json:"at"`
	// Created is a pod that there is from now on, and Deleted the uid of one that is gone.
	Created *Pod   `json:"created"`
	Deleted string `json:"deleted"`
	// Pod and Container name what was measured or killed.
	Pod       string `json:"pod"`
	Container string `json:"container"`
	// Usage has milli-cores and bytes; nil if it was not measured.
	Usage *[2]int64 `json:"usage"`
	// KilledAt is when it was killed for lack of memory, which the recommender hears after the usage.
	KilledAt *int64 `json:"killedAt"`
	// Ask asks what is recommended now.
	Ask bool `json:"ask"`
}

// History is what happened to the pods of one autoscaler's object, in the order in which the recommender hears of it.
type History struct {
	Settings Settings                            `json:"settings"`
	Policies []vpa_types.ContainerResourcePolicy `json:"policies"`
	Events   []Event                             `json:"events"`
}

// Amounts are milli-cores and bytes.
type Amounts struct {
	CPUMilli    int64 `json:"cpuMilli"`
	MemoryBytes int64 `json:"memoryBytes"`
}

// Recommended is what the status says of one container.
type Recommended struct {
	Target   Amounts `json:"target"`
	Lower    Amounts `json:"lower"`
	Upper    Amounts `json:"upper"`
	Uncapped Amounts `json:"uncapped"`
	// HasCPU and HasMemory tell whether there are samples at all: without any, the amounts are the minimum of a pod.
	HasCPU    bool `json:"hasCpu"`
	HasMemory bool `json:"hasMemory"`
}

// statuses plays the history as the autoscaler's main loop does.
func (h *History) statuses() ([]map[string]Recommended, error) {
	s := h.Settings
	model.InitializeAggregationsConfig(model.NewAggregationsConfig(seconds(s.MemoryAggregationIntervalSeconds),
		model.DefaultMemoryAggregationIntervalCount, seconds(s.MemoryHalfLifeSeconds), seconds(s.CPUHalfLifeSeconds),
		s.OomBumpUpRatio, s.OomMinBumpUpBytes))
	recommender := logic.CreatePodResourceRecommender(logic.RecommendationConfig{
		SafetyMarginFraction: s.SafetyMarginFraction, PodMinCPUMillicores: s.PodMinCPUMillicores, PodMinMemoryMb: s.PodMinMemoryMb,
		TargetCPUPercentile: s.TargetCPUPercentile, LowerBoundCPUPercentile: s.LowerBoundPercentile,
		UpperBoundCPUPercentile: s.UpperBoundPercentile, ConfidenceIntervalCPU: day,
		TargetMemoryPercentile: s.TargetMemoryPercentile, LowerBoundMemoryPercentile: s.LowerBoundPercentile,
		UpperBoundMemoryPercentile: s.UpperBoundPercentile, ConfidenceIntervalMemory: day,
	})
	object := &vpa_types.VerticalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: vpaID.Namespace, Name: vpaID.VpaName},
		Spec:       vpa_types.VerticalPodAutoscalerSpec{ResourcePolicy: &vpa_types.PodResourcePolicy{ContainerPolicies: h.Policies}},
	}
	cluster := model.NewClusterState(time.Hour)
	if err := cluster.AddOrUpdateVpa(object, labels.SelectorFromSet(labels.Set{"app": "web"})); err != nil {
		return nil, err
	}
	requests := map[model.ContainerID]model.ResourceAmount{}
	var found []map[string]Recommended
	for _, event := range h.Events {
		switch {
		case event.Created != nil:
			for _, container := range event.Created.Containers {
				requests[containerID(event.Created.UID, container.Name)] = model.ResourceAmount(container.Resources.Requests.Memory().Value())
			}
			if err := create(cluster, event.Created); err != nil {
				return nil, err
			}
		case event.Deleted != "":
			cluster.DeletePod(podID(event.Deleted))
		case event.Ask:
			found = append(found, status(cluster.VPAs()[vpaID], object, recommender))
		default:
			id := containerID(event.Pod, event.Container)
			if cluster.GetContainer(id) == nil {
				return nil, fmt.Errorf("no container %v", id)
			}
			take(cluster, id, &event, requests[id])
		}
	}
	return found, nil
}

func podID(uid string) model.PodID { return model.PodID{Namespace: namespace, PodName: uid} }

func containerID(uid, name string) model.ContainerID {
	return model.ContainerID{PodID: podID(uid), ContainerName: name}
}

func create(cluster model.ClusterState, pod *Pod) error {
	cluster.AddOrUpdatePod(podID(pod.UID), pod.Labels, v1.PodRunning)
	for _, container := range pod.Containers {
		requests := container.Resources.Requests
		amounts := model.Resources{
			model.ResourceCPU:    model.ResourceAmount(requests.Cpu().MilliValue()),
			model.ResourceMemory: model.ResourceAmount(requests.Memory().Value()),
		}
		if err := cluster.AddOrUpdateContainer(containerID(pod.UID, container.Name), amounts); err != nil {
			return err
		}
	}
	return nil
}

// take gives the samples of an event and then its kill to the model, as LoadRealTimeMetrics does. What the model discards
// is no error there.
func take(cluster model.ClusterState, id model.ContainerID, event *Event, requested model.ResourceAmount) {
	if event.Usage != nil {
		for number, resource := range []model.ResourceName{model.ResourceCPU, model.ResourceMemory} {
			usage := model.ResourceAmount(event.Usage[number])
			sample := model.ContainerUsageSample{MeasureStart: unix(event.At), Usage: usage, Resource: resource}
			_ = cluster.AddSample(&model.ContainerUsageSampleWithKey{ContainerUsageSample: sample, Container: id})
		}
	}
	if event.KilledAt != nil {
		_ = cluster.RecordOOM(id, unix(*event.KilledAt), requested)
	}
}

// status computes what the recommender writes to the status of the object.
func status(vpa *model.Vpa, object *vpa_types.VerticalPodAutoscaler, recommender logic.PodResourceRecommender) map[string]Recommended {
	states := routines.GetContainerNameToAggregateStateMap(vpa)
	format := logic.RecommendationFormat{RoundCPUMillicores: 1, RoundMemoryBytes: 1}
	list := logic.MapToListOfRecommendedContainerResources(recommender.GetRecommendedPodResources(states), format)
	list = routines.NewCappingRecommendationProcessor(nil).Process(object, list)
	found := map[string]Recommended{}
	for _, container := range list.ContainerRecommendations {
		state := states[container.ContainerName]
		found[container.ContainerName] = Recommended{
			Target: amounts(container.Target), Lower: amounts(container.LowerBound), Upper: amounts(container.UpperBound),
			Uncapped: amounts(container.UncappedTarget),
			HasCPU:   !state.AggregateCPUUsage.IsEmpty(), HasMemory: !state.AggregateMemoryPeaks.IsEmpty(),
		}
	}
	return found
}

func amounts(list v1.ResourceList) Amounts {
	return Amounts{CPUMilli: list.Cpu().MilliValue(), MemoryBytes: list.Memory().Value()}
}
