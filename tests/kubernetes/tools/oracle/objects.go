package main

import (
	"encoding/json"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	_ "k8s.io/kubernetes/pkg/apis/storage/install"
)

// loadObjects puts the other objects of a case before the plugins.
func (s *scheduler) loadObjects(asked *Case) error {
	f := s.informers
	for _, err := range []error{
		hold[v1.Namespace](f, asked.Namespaces),
		hold[v1.Service](f, asked.Services),
		hold[appsv1.ReplicaSet](f, asked.ReplicaSets),
		hold[appsv1.StatefulSet](f, asked.StatefulSets),
		hold[v1.ReplicationController](f, asked.ReplicationControllers),
		hold[v1.PersistentVolume](f, asked.PersistentVolumes),
		hold[v1.PersistentVolumeClaim](f, asked.PersistentVolumeClaims),
		hold[storagev1.StorageClass](f, asked.StorageClasses),
		hold[storagev1.CSINode](f, asked.CSINodes),
		hold[storagev1.CSIDriver](f, asked.CSIDrivers),
		hold[storagev1.CSIStorageCapacity](f, asked.CSIStorageCapacities),
		hold[storagev1.VolumeAttachment](f, asked.VolumeAttachments),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

// hold reads objects of one kind and adds them to their informer.
func hold[T any, P interface {
	*T
	runtime.Object
}](f *stillFactory, documents []json.RawMessage) error {
	found, err := readAll[T](documents)
	if err != nil {
		return err
	}
	objects := make([]P, 0, len(found))
	for _, each := range found {
		objects = append(objects, P(each))
	}
	add(f, objects)
	return nil
}
