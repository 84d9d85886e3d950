package main

import (
	"context"
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	configv1 "k8s.io/kube-scheduler/config/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

// scheduler holds kube-scheduler's default plugins with their default arguments, in the order of the default profile.
type scheduler struct {
	informers *stillFactory
	snapshot  *currentSnapshot
	plugins   []fwk.Plugin
}

// currentSnapshot is the snapshot of the present case. The plugins keep the pointer.
type currentSnapshot struct{ *cache.Snapshot }

// leftOut are default plugins about objects that cases do not have: resource claims.
var leftOut = map[string]bool{names.DynamicResources: true}

func newScheduler(ctx context.Context) (*scheduler, error) {
	metrics.Register()
	profile, err := defaultProfile()
	if err != nil {
		return nil, err
	}
	found := &scheduler{informers: newStillFactory(), snapshot: &currentSnapshot{cache.NewEmptySnapshot()}}
	made := map[string]fwk.Plugin{}
	registry := frameworkruntime.Registry{}
	for name, factory := range plugins.NewInTreeRegistry() {
		registry[name] = func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
			plugin, err := factory(ctx, args, handle)
			made[name] = plugin
			return plugin, err
		}
	}
	_, err = frameworkruntime.NewFramework(ctx, registry, profile,
		frameworkruntime.WithClientSet(fake.NewClientset()),
		frameworkruntime.WithEventRecorder(&events.FakeRecorder{}),
		frameworkruntime.WithInformerFactory(found.informers),
		frameworkruntime.WithSnapshotSharedLister(found.snapshot),
		frameworkruntime.WithSharedCSIManager(nodevolumelimits.NewCSIManager(found.informers.Storage().V1().CSINodes().Lister())),
		// One goroutine: cases are small.
		frameworkruntime.WithParallelism(1),
	)
	if err != nil {
		return nil, err
	}
	for _, each := range profile.Plugins.MultiPoint.Enabled {
		found.plugins = append(found.plugins, made[each.Name])
	}
	return found, nil
}

func defaultProfile() (*config.KubeSchedulerProfile, error) {
	versioned := configv1.KubeSchedulerConfiguration{}
	scheme.Scheme.Default(&versioned)
	internal := config.KubeSchedulerConfiguration{}
	if err := scheme.Scheme.Convert(&versioned, &internal, nil); err != nil {
		return nil, err
	}
	profile := internal.Profiles[0]
	enabled := profile.Plugins.MultiPoint.Enabled
	profile.Plugins.MultiPoint.Enabled = nil
	for _, each := range enabled {
		if !leftOut[each.Name] {
			profile.Plugins.MultiPoint.Enabled = append(profile.Plugins.MultiPoint.Enabled, each)
		}
	}
	return &profile, nil
}

// answer answers one case.
func answer(scheduler *scheduler, line []byte) *Answer {
	asked := &Case{}
	if err := json.Unmarshal(line, asked); err != nil {
		return &Answer{Error: err.Error()}
	}
	answer := &Answer{}
	if err := scheduler.load(asked, answer); err != nil {
		return &Answer{Error: err.Error()}
	}
	for _, document := range asked.Try {
		answer.Tried = append(answer.Tried, scheduler.try(document))
	}
	for _, update := range asked.Updates {
		answer.Updated = append(answer.Updated, updated(update))
	}
	return answer
}

// load makes the cluster of a case the one that the plugins see. Pods that the API server refuses are left out, and so
// are finished ones, as kube-scheduler does.
func (s *scheduler) load(asked *Case, answer *Answer) error {
	s.informers.forget()
	nodes, err := readAll[v1.Node](asked.Nodes)
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, node := range nodes {
		known[node.Name] = true
	}
	var running []*v1.Pod
	for _, document := range asked.Running {
		pod, stored := stored(document)
		answer.Running = append(answer.Running, stored)
		if pod != nil && !known[pod.Spec.NodeName] {
			return fmt.Errorf("pod %s runs on no node of the case: %q", pod.Name, pod.Spec.NodeName)
		}
		if pod != nil && pod.Status.Phase != v1.PodSucceeded && pod.Status.Phase != v1.PodFailed {
			running = append(running, pod)
		}
	}
	s.snapshot.Snapshot = cache.NewSnapshot(running, nodes)
	add(s.informers, nodes)
	add(s.informers, running)
	return s.loadObjects(asked)
}

// try judges one pod. The cluster stays as it is.
func (s *scheduler) try(document json.RawMessage) Tried {
	pod, stored := stored(document)
	tried := Tried{Stored: stored}
	if pod == nil {
		return tried
	}
	ctx := context.Background()
	for _, plugin := range s.plugins {
		if gate, ok := plugin.(fwk.PreEnqueuePlugin); ok {
			if status := gate.PreEnqueue(ctx, pod); !status.IsSuccess() {
				tried.Gated = plugin.Name() + ": " + status.Message()
			}
		}
	}
	if err := s.attempt(ctx, pod, &tried); err != nil {
		tried.Failed = err.Error()
	}
	return tried
}

// attempt filters the nodes and scores the feasible ones. An error of a plugin ends it, as in kube-scheduler. What was
// found before stays.
func (s *scheduler) attempt(ctx context.Context, pod *v1.Pod, tried *Tried) error {
	state := framework.NewCycleState()
	nodes, err := s.snapshot.List()
	if err != nil {
		return err
	}
	tried.Refused = map[string]map[string]Refusal{}
	if err := s.filter(ctx, state, pod, nodes, tried.Refused); err != nil {
		return err
	}
	feasible := make([]fwk.NodeInfo, 0, len(nodes))
	for _, node := range nodes {
		if tried.Refused[node.Node().Name] == nil {
			feasible = append(feasible, node)
		}
	}
	tried.Scores, err = s.score(ctx, state, pod, feasible)
	return err
}

// filter asks every plugin about every node, also about nodes that another plugin refuses.
func (s *scheduler) filter(
	ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo, found map[string]map[string]Refusal,
) error {
	refuse := func(node fwk.NodeInfo, plugin fwk.Plugin, status *fwk.Status) error {
		if status.Code() != fwk.Unschedulable && status.Code() != fwk.UnschedulableAndUnresolvable {
			return fmt.Errorf("%s about pod %s: %s: %w", plugin.Name(), pod.Name, status.Code(), status.AsError())
		}
		name := node.Node().Name
		if found[name] == nil {
			found[name] = map[string]Refusal{}
		}
		found[name][plugin.Name()] = Refusal{
			Reasons: status.Reasons(),
			Never:   status.Code() == fwk.UnschedulableAndUnresolvable,
		}
		return nil
	}
	for _, plugin := range s.plugins {
		var only *fwk.PreFilterResult
		if before, ok := plugin.(fwk.PreFilterPlugin); ok {
			result, status := before.PreFilter(ctx, state, pod, nodes)
			if status.IsSkip() {
				continue
			}
			if !status.IsSuccess() {
				for _, node := range nodes {
					if err := refuse(node, plugin, status); err != nil {
						return err
					}
				}
				continue
			}
			only = result
		}
		filter, filters := plugin.(fwk.FilterPlugin)
		for _, node := range nodes {
			if !only.AllNodes() && !only.NodeNames.Has(node.Node().Name) {
				status := fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "node is filtered out by the prefilter result")
				if err := refuse(node, plugin, status); err != nil {
					return err
				}
				continue
			}
			if !filters {
				continue
			}
			if status := filter.Filter(ctx, state, pod, node); !status.IsSuccess() {
				if err := refuse(node, plugin, status); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// score asks every plugin about the feasible nodes.
func (s *scheduler) score(
	ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo,
) (map[string]map[string]Score, error) {
	found := map[string]map[string]Score{}
	if len(nodes) == 0 {
		return found, nil
	}
	for _, plugin := range s.plugins {
		scorer, ok := plugin.(fwk.ScorePlugin)
		if !ok {
			continue
		}
		if before, ok := plugin.(fwk.PreScorePlugin); ok {
			status := before.PreScore(ctx, state, pod, nodes)
			if status.IsSkip() {
				continue
			}
			if !status.IsSuccess() {
				return nil, fmt.Errorf("%s before scores: %w", plugin.Name(), status.AsError())
			}
		}
		scores := make(fwk.NodeScoreList, 0, len(nodes))
		for _, node := range nodes {
			raw, status := scorer.Score(ctx, state, pod, node)
			if !status.IsSuccess() {
				return nil, fmt.Errorf("%s scores: %w", plugin.Name(), status.AsError())
			}
			scores = append(scores, fwk.NodeScore{Name: node.Node().Name, Score: raw})
		}
		byNode := map[string]Score{}
		for _, each := range scores {
			byNode[each.Name] = Score{Raw: each.Score}
		}
		if extensions := scorer.ScoreExtensions(); extensions != nil {
			if status := extensions.NormalizeScore(ctx, state, pod, scores); !status.IsSuccess() {
				return nil, fmt.Errorf("%s normalizes: %w", plugin.Name(), status.AsError())
			}
		}
		for _, each := range scores {
			byNode[each.Name] = Score{Raw: byNode[each.Name].Raw, Normalized: each.Score}
		}
		found[plugin.Name()] = byNode
	}
	return found, nil
}
