package main

import (
	"context"
	"slices"
	"strings"
	"time"

	promapi "github.com/prometheus/client_golang/api"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/descheduler/pkg/descheduler/evictions"
	"sigs.k8s.io/descheduler/pkg/descheduler/metricscollector"
	nodeutil "sigs.k8s.io/descheduler/pkg/descheduler/node"
	podutil "sigs.k8s.io/descheduler/pkg/descheduler/pod"
	frameworktypes "sigs.k8s.io/descheduler/pkg/framework/types"
)

// cluster is what plugins see of a case. Its informers never start: their stores hold the objects.
type cluster struct {
	client    clientset.Interface
	informers informers.SharedInformerFactory
	pods      map[string][]*v1.Pod
}

func newCluster(asked *Case) *cluster {
	var classes []runtime.Object
	for _, each := range asked.PriorityClasses {
		classes = append(classes, each)
	}
	// NewClientset would need the schemas of all types for each case.
	client := fake.NewSimpleClientset(classes...) //nolint:staticcheck
	found := &cluster{client: client, informers: informers.NewSharedInformerFactory(client, 0), pods: map[string][]*v1.Pod{}}
	core, policy := found.informers.Core().V1(), found.informers.Policy().V1()
	hold(core.Nodes().Informer(), asked.Nodes)
	hold(core.Pods().Informer(), asked.Pods)
	hold(core.Namespaces().Informer(), asked.Namespaces)
	hold(core.PersistentVolumeClaims().Informer(), asked.PersistentVolumeClaims)
	hold(policy.PodDisruptionBudgets().Informer(), asked.PodDisruptionBudgets)
	for _, pod := range asked.Pods {
		found.pods[pod.Spec.NodeName] = append(found.pods[pod.Spec.NodeName], pod)
	}
	return found
}

func hold[T runtime.Object](informer cache.SharedIndexInformer, objects []T) {
	for _, each := range objects {
		_ = informer.GetIndexer().Add(each)
	}
}

// podsOn gives the pods of a node in the order of the case; the descheduler's index has them in any order.
func (c *cluster) podsOn(node string, filter podutil.FilterFunc) ([]*v1.Pod, error) {
	var found []*v1.Pod
	for _, pod := range c.pods[node] {
		if filter == nil || filter(pod) {
			found = append(found, pod)
		}
	}
	return found, nil
}

// readyNodes are the nodes of a round, by name.
func (c *cluster) readyNodes(ctx context.Context) ([]*v1.Node, error) {
	nodes, err := nodeutil.ReadyNodes(ctx, c.client, c.informers.Core().V1().Nodes().Lister(), "")
	slices.SortFunc(nodes, func(a, b *v1.Node) int { return strings.Compare(a.Name, b.Name) })
	return nodes, err
}

// handle is what a plugin gets.
type handle struct {
	*cluster
	evictor frameworktypes.Evictor
}

func (h *handle) ClientSet() clientset.Interface                               { return h.client }
func (h *handle) PrometheusClient() promapi.Client                             { return nil }
func (h *handle) Evictor() frameworktypes.Evictor                              { return h.evictor }
func (h *handle) GetPodsAssignedToNodeFunc() podutil.GetPodsAssignedToNodeFunc { return h.podsOn }
func (h *handle) SharedInformerFactory() informers.SharedInformerFactory       { return h.informers }
func (h *handle) MetricsCollector() *metricscollector.MetricsCollector         { return nil }
func (h *handle) PluginInstanceID() string                                     { return "only" }

// recorder takes evictions, and lets another plugin filter pods.
type recorder struct {
	frameworktypes.EvictorPlugin
	evicted []string
}

func (r *recorder) Evict(_ context.Context, pod *v1.Pod, _ evictions.EvictOptions) error {
	r.evicted = append(r.evicted, string(pod.UID))
	return nil
}

// moveToPresent shifts all times of pods by the time since the case.
func moveToPresent(asked *Case) {
	shift := time.Since(asked.Now).Truncate(time.Second)
	for _, pod := range asked.Pods {
		moveTime(&pod.CreationTimestamp, shift)
		moveTime(pod.Status.StartTime, shift)
		for i := range pod.Status.Conditions {
			moveTime(&pod.Status.Conditions[i].LastTransitionTime, shift)
		}
	}
}

func moveTime(at *metav1.Time, shift time.Duration) {
	if at != nil && !at.IsZero() {
		at.Time = at.Add(shift)
	}
}
