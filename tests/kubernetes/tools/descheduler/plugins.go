package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/descheduler/pkg/framework/pluginregistry"
	"sigs.k8s.io/descheduler/pkg/framework/plugins/defaultevictor"
	"sigs.k8s.io/descheduler/pkg/framework/plugins/nodeutilization"
	"sigs.k8s.io/descheduler/pkg/framework/plugins/podlifetime"
	"sigs.k8s.io/descheduler/pkg/framework/plugins/removeduplicates"
	"sigs.k8s.io/descheduler/pkg/framework/plugins/removefailedpods"
	"sigs.k8s.io/descheduler/pkg/framework/plugins/removepodshavingtoomanyrestarts"
	"sigs.k8s.io/descheduler/pkg/framework/plugins/removepodsviolatinginterpodantiaffinity"
	"sigs.k8s.io/descheduler/pkg/framework/plugins/removepodsviolatingnodeaffinity"
	"sigs.k8s.io/descheduler/pkg/framework/plugins/removepodsviolatingnodetaints"
	"sigs.k8s.io/descheduler/pkg/framework/plugins/removepodsviolatingtopologyspreadconstraint"
	frameworktypes "sigs.k8s.io/descheduler/pkg/framework/types"
)

// kind is how the descheduler makes a plugin from its arguments.
type kind struct {
	args     func() runtime.Object
	build    pluginregistry.PluginBuilder
	validate pluginregistry.PluginArgValidator
	defaults pluginregistry.PluginArgDefaulter
}

var kinds = map[string]kind{
	nodeutilization.LowNodeUtilizationPluginName: {
		func() runtime.Object { return &nodeutilization.LowNodeUtilizationArgs{} },
		nodeutilization.NewLowNodeUtilization,
		nodeutilization.ValidateLowNodeUtilizationArgs,
		nodeutilization.SetDefaults_LowNodeUtilizationArgs,
	},
	nodeutilization.HighNodeUtilizationPluginName: {
		func() runtime.Object { return &nodeutilization.HighNodeUtilizationArgs{} },
		nodeutilization.NewHighNodeUtilization,
		nodeutilization.ValidateHighNodeUtilizationArgs,
		nodeutilization.SetDefaults_HighNodeUtilizationArgs,
	},
	podlifetime.PluginName: {
		func() runtime.Object { return &podlifetime.PodLifeTimeArgs{} },
		podlifetime.New,
		podlifetime.ValidatePodLifeTimeArgs,
		podlifetime.SetDefaults_PodLifeTimeArgs,
	},
	removeduplicates.PluginName: {
		func() runtime.Object { return &removeduplicates.RemoveDuplicatesArgs{} },
		removeduplicates.New,
		removeduplicates.ValidateRemoveDuplicatesArgs,
		removeduplicates.SetDefaults_RemoveDuplicatesArgs,
	},
	removefailedpods.PluginName: {
		func() runtime.Object { return &removefailedpods.RemoveFailedPodsArgs{} },
		removefailedpods.New,
		removefailedpods.ValidateRemoveFailedPodsArgs,
		removefailedpods.SetDefaults_RemoveFailedPodsArgs,
	},
	removepodshavingtoomanyrestarts.PluginName: {
		func() runtime.Object { return &removepodshavingtoomanyrestarts.RemovePodsHavingTooManyRestartsArgs{} },
		removepodshavingtoomanyrestarts.New,
		removepodshavingtoomanyrestarts.ValidateRemovePodsHavingTooManyRestartsArgs,
		removepodshavingtoomanyrestarts.SetDefaults_RemovePodsHavingTooManyRestartsArgs,
	},
	removepodsviolatinginterpodantiaffinity.PluginName: {
		func() runtime.Object {
			return &removepodsviolatinginterpodantiaffinity.RemovePodsViolatingInterPodAntiAffinityArgs{}
		},
		removepodsviolatinginterpodantiaffinity.New,
		removepodsviolatinginterpodantiaffinity.ValidateRemovePodsViolatingInterPodAntiAffinityArgs,
		removepodsviolatinginterpodantiaffinity.SetDefaults_RemovePodsViolatingInterPodAntiAffinityArgs,
	},
	removepodsviolatingnodeaffinity.PluginName: {
		func() runtime.Object { return &removepodsviolatingnodeaffinity.RemovePodsViolatingNodeAffinityArgs{} },
		removepodsviolatingnodeaffinity.New,
		removepodsviolatingnodeaffinity.ValidateRemovePodsViolatingNodeAffinityArgs,
		removepodsviolatingnodeaffinity.SetDefaults_RemovePodsViolatingNodeAffinityArgs,
	},
	removepodsviolatingnodetaints.PluginName: {
		func() runtime.Object { return &removepodsviolatingnodetaints.RemovePodsViolatingNodeTaintsArgs{} },
		removepodsviolatingnodetaints.New,
		removepodsviolatingnodetaints.ValidateRemovePodsViolatingNodeTaintsArgs,
		removepodsviolatingnodetaints.SetDefaults_RemovePodsViolatingNodeTaintsArgs,
	},
	removepodsviolatingtopologyspreadconstraint.PluginName: {
		func() runtime.Object {
			return &removepodsviolatingtopologyspreadconstraint.RemovePodsViolatingTopologySpreadConstraintArgs{}
		},
		removepodsviolatingtopologyspreadconstraint.New,
		removepodsviolatingtopologyspreadconstraint.ValidateRemovePodsViolatingTopologySpreadConstraintArgs,
		removepodsviolatingtopologyspreadconstraint.SetDefaults_RemovePodsViolatingTopologySpreadConstraintArgs,
	},
}

var evictorKind = kind{
	func() runtime.Object { return &defaultevictor.DefaultEvictorArgs{} },
	defaultevictor.New,
	defaultevictor.ValidateDefaultEvictorArgs,
	defaultevictor.SetDefaults_DefaultEvictorArgs,
}

// made is a plugin with arguments, as the descheduler reads, completes and checks them.
func (k kind) made(ctx context.Context, document json.RawMessage, given frameworktypes.Handle) (frameworktypes.Plugin, error) {
	args := k.args()
	if err := json.Unmarshal(document, args); err != nil {
		return nil, err
	}
	k.defaults(args)
	if err := k.validate(args); err != nil {
		return nil, err
	}
	return k.build(ctx, args, given)
}

func newEvictor(ctx context.Context, known *cluster, document json.RawMessage) (frameworktypes.EvictorPlugin, error) {
	plugin, err := evictorKind.made(ctx, document, &handle{cluster: known})
	if err != nil {
		return nil, fmt.Errorf("evictor: %w", err)
	}
	return plugin.(frameworktypes.EvictorPlugin), nil
}

// round runs the plugin of a case once. It returns the sorted uids of the pods that it evicts.
func round(ctx context.Context, known *cluster, evictor frameworktypes.EvictorPlugin, asked *Case) ([]string, error) {
	found, ok := kinds[asked.Plugin]
	if !ok {
		return nil, fmt.Errorf("no plugin %q", asked.Plugin)
	}
	nodes, err := known.readyNodes(ctx)
	if err != nil {
		return nil, err
	}
	record := &recorder{EvictorPlugin: evictor, evicted: []string{}}
	plugin, err := found.made(ctx, asked.Args, &handle{cluster: known, evictor: record})
	if err != nil {
		return nil, err
	}
	var status *frameworktypes.Status
	switch each := plugin.(type) {
	case frameworktypes.DeschedulePlugin:
		status = each.Deschedule(ctx, nodes)
	case frameworktypes.BalancePlugin:
		status = each.Balance(ctx, nodes)
	}
	if status != nil && status.Err != nil {
		return nil, status.Err
	}
	slices.Sort(record.evicted)
	return slices.Compact(record.evicted), nil
}
