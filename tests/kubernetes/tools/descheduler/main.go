// Descheduler answers which pods the plugins of the Kubernetes descheduler evict: one line of JSON for each line of JSON.
//
// A line is a case: a cluster, the arguments of one plugin, and those of the evictor. Nothing here decides: every answer
// comes from the descheduler's code. See docs/decisions/0066.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/klog/v2"
)

func main() {
	klog.InitFlags(nil)
	_ = flag.Set("logtostderr", "false")
	_ = flag.Set("stderrthreshold", "FATAL")
	flag.Parse()
	klog.SetOutput(io.Discard)
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "descheduler:", err)
		os.Exit(1)
	}
}

// serve answers cases until the input ends.
func serve(in io.Reader, out io.Writer) error {
	reader := bufio.NewReaderSize(in, 1<<20)
	encoder := json.NewEncoder(out)
	for {
		line, err := reader.ReadBytes('\n')
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := encoder.Encode(answer(context.Background(), line)); err != nil {
			return err
		}
	}
}

// Case is one question.
type Case struct {
	// Now is the time of the cluster. All times of pods move with it to the present time, which plugins read.
	Now                    time.Time                       `json:"now"`
	Nodes                  []*v1.Node                      `json:"nodes"`
	Pods                   []*v1.Pod                       `json:"pods"`
	Namespaces             []*v1.Namespace                 `json:"namespaces"`
	PodDisruptionBudgets   []*policyv1.PodDisruptionBudget `json:"podDisruptionBudgets"`
	PersistentVolumeClaims []*v1.PersistentVolumeClaim     `json:"persistentVolumeClaims"`
	PriorityClasses        []*schedulingv1.PriorityClass   `json:"priorityClasses"`
	// Plugin is the name of a plugin, and Args are its arguments.
	Plugin string          `json:"plugin"`
	Args   json.RawMessage `json:"args"`
	// Evictor has the arguments of the DefaultEvictor.
	Evictor json.RawMessage `json:"evictor"`
	// Rounds is how often the plugin runs, each time on the same cluster. Plugins iterate maps: outcomes can differ.
	Rounds int `json:"rounds"`
}

// Answer is the answer to one case.
type Answer struct {
	// Error says why the case cannot be read.
	Error string `json:"error,omitempty"`
	// Invalid says why the descheduler refuses the arguments.
	Invalid string `json:"invalid,omitempty"`
	// Evictable has the uids of the pods that the evictor's filter accepts, and Fitting of those that pass the filter
	// just before an eviction.
	Evictable []string `json:"evictable,omitempty"`
	Fitting   []string `json:"fitting,omitempty"`
	// Outcomes has the different sets of evicted pods, as sorted uids.
	Outcomes [][]string `json:"outcomes,omitempty"`
}

// answer gives an error for a case that the descheduler cannot work with, such as a pod without containers.
func answer(ctx context.Context, line []byte) (found Answer) {
	defer func() {
		if failed := recover(); failed != nil {
			found = Answer{Error: fmt.Sprint(failed)}
		}
	}()
	var asked Case
	if err := json.Unmarshal(line, &asked); err != nil {
		return Answer{Error: err.Error()}
	}
	moveToPresent(&asked)
	cluster := newCluster(&asked)
	evictor, err := newEvictor(ctx, cluster, asked.Evictor)
	if err != nil {
		return Answer{Invalid: err.Error()}
	}
	for _, pod := range asked.Pods {
		if evictor.Filter(pod) {
			found.Evictable = append(found.Evictable, string(pod.UID))
		}
		if evictor.PreEvictionFilter(pod) {
			found.Fitting = append(found.Fitting, string(pod.UID))
		}
	}
	seen := map[string]bool{}
	for range max(asked.Rounds, 1) {
		evicted, err := round(ctx, cluster, evictor, &asked)
		if err != nil {
			return Answer{Invalid: err.Error()}
		}
		if key := fmt.Sprint(evicted); !seen[key] {
			seen[key] = true
			found.Outcomes = append(found.Outcomes, evicted)
		}
	}
	return found
}
