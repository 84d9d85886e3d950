package main

import (
	"context"
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	core "k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	podregistry "k8s.io/kubernetes/pkg/registry/core/pod"
	kjson "sigs.k8s.io/json"
)

// stored does to a pod what an API server does on creation, without admission plugins: it sets the defaults, prepares the
// object (QoS class, merged matchLabelKeys), and validates it. Unknown and duplicate fields are errors, as for kubectl.
// The status of a pod that runs is kept; an API server would only take it on a second request.
func stored(document json.RawMessage) (*v1.Pod, Stored) {
	internal, status, failure := read(document)
	if failure != nil {
		return nil, refused(*failure)
	}
	ctx := genericapirequest.WithNamespace(context.Background(), internal.Namespace)
	podregistry.Strategy.PrepareForCreate(ctx, internal)
	if errs := podregistry.Strategy.Validate(ctx, internal); len(errs) > 0 {
		return nil, refused(fieldErrors(errs)...)
	}
	created := &v1.Pod{}
	if err := legacyscheme.Scheme.Convert(internal, created, nil); err != nil {
		return nil, refused(FieldError{Type: "convert", Detail: err.Error()})
	}
	created.Status = merged(created.Status, status)
	encoded, err := json.Marshal(created)
	if err != nil {
		return nil, refused(FieldError{Type: "encode", Detail: err.Error()})
	}
	return created, Stored{Pod: encoded}
}

// updated says which errors an API server finds in an update of a stored pod. None: it accepts the update.
func updated(update Update) []FieldError {
	old, _, failure := read(update.Old)
	if failure != nil {
		return []FieldError{*failure}
	}
	changed, _, failure := read(update.New)
	if failure != nil {
		return []FieldError{*failure}
	}
	old.ResourceVersion, changed.ResourceVersion = "1", "1"
	ctx := genericapirequest.WithNamespace(context.Background(), old.Namespace)
	podregistry.Strategy.PrepareForUpdate(ctx, changed, old)
	return fieldErrors(podregistry.Strategy.ValidateUpdate(ctx, changed, old))
}

// read decodes a pod and sets its defaults. The status is as it was given.
func read(document json.RawMessage) (*core.Pod, v1.PodStatus, *FieldError) {
	pod := &v1.Pod{}
	strict, err := kjson.UnmarshalStrict(document, pod)
	if err == nil && len(strict) > 0 {
		err = strict[0]
	}
	if err != nil {
		return nil, pod.Status, &FieldError{Type: "decode", Detail: err.Error()}
	}
	if pod.Namespace == "" {
		pod.Namespace = metav1.NamespaceDefault
	}
	legacyscheme.Scheme.Default(pod)
	internal := &core.Pod{}
	if err := legacyscheme.Scheme.Convert(pod, internal, nil); err != nil {
		return nil, pod.Status, &FieldError{Type: "convert", Detail: err.Error()}
	}
	return internal, pod.Status, nil
}

// merged is the status that a case gives, with what an API server computes.
func merged(created, given v1.PodStatus) v1.PodStatus {
	if given.Phase == "" {
		given.Phase = created.Phase
	}
	given.QOSClass = created.QOSClass
	given.Conditions = append(given.Conditions, created.Conditions...)
	return given
}

func refused(errors ...FieldError) Stored {
	return Stored{Errors: errors}
}

func fieldErrors(errs field.ErrorList) []FieldError {
	found := make([]FieldError, 0, len(errs))
	for _, each := range errs {
		found = append(found, FieldError{Type: string(each.Type), Field: each.Field, Detail: each.ErrorBody()})
	}
	return found
}

// readAll reads and defaults objects of one kind of the cluster. These are not validated: a case must have valid ones.
func readAll[T any](documents []json.RawMessage) ([]*T, error) {
	found := make([]*T, 0, len(documents))
	for _, document := range documents {
		object := new(T)
		strict, err := kjson.UnmarshalStrict(document, object)
		if err == nil && len(strict) > 0 {
			err = strict[0]
		}
		if err != nil {
			return nil, fmt.Errorf("%T: %w: %s", object, err, document)
		}
		legacyscheme.Scheme.Default(any(object).(runtime.Object))
		found = append(found, object)
	}
	return found, nil
}
