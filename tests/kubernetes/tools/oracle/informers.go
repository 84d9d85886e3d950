package main

import (
	"context"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/apps"
	"k8s.io/client-go/informers/core"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/informers/policy"
	"k8s.io/client-go/informers/storage"
	"k8s.io/client-go/tools/cache"
)

// stillFactory gives informers that watch nothing: what they hold is put there, and handlers hear of it at once, in the
// same goroutine. So a case begins on a cluster that every cache of every plugin already knows.
type stillFactory struct {
	// Only the groups that default plugins read are overridden. Asking for another one is a nil dereference.
	informers.SharedInformerFactory
	byType map[reflect.Type]*stillInformer
}

func newStillFactory() *stillFactory {
	return &stillFactory{byType: map[reflect.Type]*stillInformer{}}
}

func (f *stillFactory) InformerFor(obj runtime.Object, _ internalinterfaces.NewInformerFunc) cache.SharedIndexInformer {
	return f.of(obj)
}

func (f *stillFactory) of(obj runtime.Object) *stillInformer {
	kind := reflect.TypeOf(obj)
	if f.byType[kind] == nil {
		indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
		f.byType[kind] = &stillInformer{indexer: cache.NewIndexer(cache.MetaNamespaceKeyFunc, indexers)}
	}
	return f.byType[kind]
}

// forget removes every object.
func (f *stillFactory) forget() {
	for _, informer := range f.byType {
		for _, obj := range informer.indexer.List() {
			_ = informer.indexer.Delete(obj)
			for _, handler := range informer.handlers {
				handler.OnDelete(obj)
			}
		}
	}
}

// add puts objects of one kind into its informer.
func add[T runtime.Object](f *stillFactory, objects []T) {
	for _, obj := range objects {
		informer := f.of(obj)
		_ = informer.indexer.Add(obj)
		for _, handler := range informer.handlers {
			handler.OnAdd(obj, true)
		}
	}
}

func (f *stillFactory) Core() core.Interface       { return core.New(f, "", nil) }
func (f *stillFactory) Apps() apps.Interface       { return apps.New(f, "", nil) }
func (f *stillFactory) Storage() storage.Interface { return storage.New(f, "", nil) }
func (f *stillFactory) Policy() policy.Interface   { return policy.New(f, "", nil) }
func (f *stillFactory) Start(<-chan struct{})      {}

type stillInformer struct {
	indexer  cache.Indexer
	handlers []cache.ResourceEventHandler
}

type registration struct{}

func (registration) HasSynced() bool { return true }

func (i *stillInformer) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	i.handlers = append(i.handlers, handler)
	return registration{}, nil
}

func (i *stillInformer) AddEventHandlerWithResyncPeriod(handler cache.ResourceEventHandler, _ time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandler(handler)
}

func (i *stillInformer) AddEventHandlerWithOptions(handler cache.ResourceEventHandler, _ cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandler(handler)
}

func (i *stillInformer) RemoveEventHandler(cache.ResourceEventHandlerRegistration) error { return nil }
func (i *stillInformer) GetStore() cache.Store                                           { return i.indexer }
func (i *stillInformer) GetController() cache.Controller                                 { return nil }
func (i *stillInformer) Run(<-chan struct{})                                             {}
func (i *stillInformer) RunWithContext(context.Context)                                  {}
func (i *stillInformer) HasSynced() bool                                                 { return true }
func (i *stillInformer) LastSyncResourceVersion() string                                 { return "" }
func (i *stillInformer) SetWatchErrorHandler(cache.WatchErrorHandler) error              { return nil }
func (i *stillInformer) SetTransform(cache.TransformFunc) error                          { return nil }
func (i *stillInformer) IsStopped() bool                                                 { return false }
func (i *stillInformer) AddIndexers(indexers cache.Indexers) error {
	return i.indexer.AddIndexers(indexers)
}
func (i *stillInformer) GetIndexer() cache.Indexer { return i.indexer }
func (i *stillInformer) SetWatchErrorHandlerWithContext(cache.WatchErrorHandlerWithContext) error {
	return nil
}
