// Oracle answers what Kubernetes itself thinks of pods: one line of JSON for each line of JSON.
//
// A line is a case: a cluster, and pods to try on it one by one. The answer has, for each pod, the verdict of the API
// server (defaults and validation) and, for each node, which of kube-scheduler's default plugins refuse the pod, and the
// scores. Nothing here decides: every answer comes from the code of Kubernetes. See docs/decisions/0058.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"

	"k8s.io/klog/v2"
)

func main() {
	flag.Parse()
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "oracle:", err)
		os.Exit(1)
	}
}

// serve answers cases until the input ends. A case that cannot be answered gives {"error": "..."}.
func serve(in io.Reader, out io.Writer) error {
	scheduler, err := newScheduler(context.Background())
	if err != nil {
		return err
	}
	reader := bufio.NewReaderSize(in, 1<<20)
	writer := bufio.NewWriterSize(out, 1<<20)
	for {
		line, err := reader.ReadBytes('\n')
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		encoded, err := json.Marshal(answer(scheduler, line))
		if err != nil {
			return err
		}
		if _, err := writer.Write(append(encoded, '\n')); err != nil {
			return err
		}
		if err := writer.Flush(); err != nil {
			return err
		}
	}
}

// Case is one question: objects of a cluster by kind, as an API server would be given them, and pods to try.
type Case struct {
	Nodes                  []json.RawMessage `json:"nodes"`
	Running                []json.RawMessage `json:"running"`
	Namespaces             []json.RawMessage `json:"namespaces"`
	Services               []json.RawMessage `json:"services"`
	ReplicaSets            []json.RawMessage `json:"replicaSets"`
	StatefulSets           []json.RawMessage `json:"statefulSets"`
	ReplicationControllers []json.RawMessage `json:"replicationControllers"`
	PersistentVolumes      []json.RawMessage `json:"persistentVolumes"`
	PersistentVolumeClaims []json.RawMessage `json:"persistentVolumeClaims"`
	StorageClasses         []json.RawMessage `json:"storageClasses"`
	CSINodes               []json.RawMessage `json:"csiNodes"`
	CSIDrivers             []json.RawMessage `json:"csiDrivers"`
	CSIStorageCapacities   []json.RawMessage `json:"csiStorageCapacities"`
	VolumeAttachments      []json.RawMessage `json:"volumeAttachments"`
	Try                    []json.RawMessage `json:"try"`
	Updates                []Update          `json:"updates"`
}

// Update is a change of a stored pod.
type Update struct {
	Old json.RawMessage `json:"old"`
	New json.RawMessage `json:"new"`
}

// Answer is the answer to one case.
type Answer struct {
	Error   string   `json:"error,omitempty"`
	Running []Stored `json:"running"`
	Tried   []Tried  `json:"tried,omitempty"`
	// Updated has the errors of each update.
	Updated [][]FieldError `json:"updated,omitempty"`
}

// Stored is what the API server makes of a pod: why it refuses it, or the object that it stores.
type Stored struct {
	Errors []FieldError    `json:"errors,omitempty"`
	Pod    json.RawMessage `json:"pod,omitempty"`
}

// FieldError is one error of validation.
type FieldError struct {
	Type   string `json:"type"`
	Field  string `json:"field"`
	Detail string `json:"detail"`
}

// Tried is what the API server and the scheduler make of a pod. An invalid pod is not scheduled.
type Tried struct {
	Stored
	// Gated says why the pod is not attempted. Its nodes are judged all the same.
	Gated string `json:"gated,omitempty"`
	// Failed is the error with which a plugin ended the attempt: kube-scheduler tries such a pod again and again.
	Failed string `json:"failed,omitempty"`
	// Refused has, by node, the plugins that refuse the pod, with their reasons. Nodes that no plugin refuses are feasible.
	Refused map[string]map[string]Refusal `json:"refused,omitempty"`
	// Scores has the raw and the normalized score by plugin and feasible node. A plugin that skips the pod is absent.
	Scores map[string]map[string]Score `json:"scores,omitempty"`
}

// Refusal is why a plugin refuses a node.
type Refusal struct {
	Reasons []string `json:"reasons"`
	// Never says that no eviction can help.
	Never bool `json:"never,omitempty"`
}

// Score is the score that a plugin gives to a node, before and after its normalization to 0..100.
type Score struct {
	Raw        int64 `json:"raw"`
	Normalized int64 `json:"normalized"`
}
