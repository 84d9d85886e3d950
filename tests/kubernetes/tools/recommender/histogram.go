package main

import (
	"fmt"

	vpa_types "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/util"
)

// Sample is a value with its weight, at a Unix time in seconds.
type Sample struct {
	Value  float64 `json:"value"`
	Weight float64 `json:"weight"`
	At     int64   `json:"at"`
}

// Operation is one of these.
type Operation struct {
	Add      *Sample `json:"add"`
	Subtract *Sample `json:"subtract"`
	// Merge has the samples of another histogram, which is merged into this one.
	Merge []Sample `json:"merge"`
	// Reload replaces the histogram by what a checkpoint has of it.
	Reload bool `json:"reload"`
	Ask    bool `json:"ask"`
}

// Histogram is a histogram whose samples lose weight, and what is done to it.
type Histogram struct {
	// BucketSize is that of a histogram with equal buckets. 0: they grow by Ratio from FirstBucketSize on.
	MaxValue        float64     `json:"maxValue"`
	BucketSize      float64     `json:"bucketSize"`
	FirstBucketSize float64     `json:"firstBucketSize"`
	Ratio           float64     `json:"ratio"`
	Epsilon         float64     `json:"epsilon"`
	HalfLifeSeconds int64       `json:"halfLifeSeconds"`
	Percentiles     []float64   `json:"percentiles"`
	Operations      []Operation `json:"operations"`
}

// Shape is what a histogram is.
type Shape struct {
	Buckets     int                           `json:"buckets"`
	IsEmpty     bool                          `json:"isEmpty"`
	Percentiles []float64                     `json:"percentiles,omitempty"`
	Checkpoint  vpa_types.HistogramCheckpoint `json:"checkpoint"`
}

func (h *Histogram) shapes() (found []Shape, err error) {
	var options util.HistogramOptions
	if h.BucketSize > 0 {
		options, err = util.NewLinearHistogramOptions(h.MaxValue, h.BucketSize, h.Epsilon)
	} else {
		options, err = util.NewExponentialHistogramOptions(h.MaxValue, h.FirstBucketSize, h.Ratio, h.Epsilon)
	}
	if err != nil {
		return nil, err
	}
	empty := func() util.Histogram { return util.NewDecayingHistogram(options, seconds(h.HalfLifeSeconds)) }
	histogram := empty()
	for _, operation := range h.Operations {
		switch {
		case operation.Add != nil:
			add(histogram, *operation.Add)
		case operation.Subtract != nil:
			histogram.SubtractSample(operation.Subtract.Value, operation.Subtract.Weight, unix(operation.Subtract.At))
		case operation.Merge != nil:
			other := empty()
			for _, sample := range operation.Merge {
				add(other, sample)
			}
			histogram.Merge(other)
		case operation.Reload:
			checkpoint, err := histogram.SaveToChekpoint()
			if err != nil {
				return nil, err
			}
			histogram = empty()
			if err := histogram.LoadFromCheckpoint(checkpoint); err != nil {
				return nil, err
			}
		case operation.Ask:
			checkpoint, err := histogram.SaveToChekpoint()
			if err != nil {
				return nil, err
			}
			shape := Shape{Buckets: options.NumBuckets(), IsEmpty: histogram.IsEmpty(), Checkpoint: *checkpoint}
			for _, percentile := range h.Percentiles {
				shape.Percentiles = append(shape.Percentiles, histogram.Percentile(percentile))
			}
			found = append(found, shape)
		default:
			return nil, fmt.Errorf("no operation: %+v", operation)
		}
	}
	return found, nil
}

func add(histogram util.Histogram, sample Sample) {
	histogram.AddSample(sample.Value, sample.Weight, unix(sample.At))
}
