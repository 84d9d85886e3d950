// Recommender answers what the Vertical Pod Autoscaler recommends: one line of JSON for each line of JSON.
//
// A line is a history of usage samples and kills, or operations on a histogram. Nothing here decides: every answer comes
// from the autoscaler's code. See docs/decisions/0073.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"k8s.io/klog/v2"
)

func main() {
	klog.InitFlags(nil)
	_ = flag.Set("logtostderr", "false")
	_ = flag.Set("stderrthreshold", "FATAL")
	flag.Parse()
	klog.SetOutput(io.Discard)
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "recommender:", err)
		os.Exit(1)
	}
}

// serve answers cases until the input ends.
func serve(in io.Reader, out io.Writer) error {
	reader := bufio.NewReaderSize(in, 1<<20)
	for {
		line, err := reader.ReadBytes('\n')
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		found, err := json.Marshal(answer(line))
		if err != nil { // such as NaN, if the case is none
			found, _ = json.Marshal(Answer{Error: err.Error()})
		}
		if _, err := out.Write(append(found, '\n')); err != nil {
			return err
		}
	}
}

// Case is one question: a history, or a histogram.
type Case struct {
	History   *History   `json:"history"`
	Histogram *Histogram `json:"histogram"`
}

// Answer is the answer to one case.
type Answer struct {
	// Error says why the case cannot be read.
	Error string `json:"error,omitempty"`
	// Statuses has what is recommended at each event that asks: container -> amounts.
	Statuses []map[string]Recommended `json:"statuses,omitempty"`
	// Shapes has what the histogram is at each operation that asks.
	Shapes []Shape `json:"shapes,omitempty"`
}

func answer(line []byte) (found Answer) {
	defer func() {
		if failed := recover(); failed != nil {
			found = Answer{Error: fmt.Sprint(failed)}
		}
	}()
	var asked Case
	err := json.Unmarshal(line, &asked)
	switch {
	case err != nil:
	case asked.Histogram != nil:
		found.Shapes, err = asked.Histogram.shapes()
	case asked.History != nil:
		found.Statuses, err = asked.History.statuses()
	}
	if err != nil {
		return Answer{Error: err.Error()}
	}
	return found
}

func unix(seconds int64) time.Time { return time.Unix(seconds, 0).UTC() }

func seconds(count int64) time.Duration { return time.Duration(count) * time.Second }
