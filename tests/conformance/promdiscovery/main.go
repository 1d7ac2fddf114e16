// Command promdiscovery prints what Prometheus' service discovery finds in the cluster of
// KUBECONFIG, a line of JSON for each change: its role, its source, and the labels of its targets.
package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/config"
	"github.com/prometheus/prometheus/discovery"
	"github.com/prometheus/prometheus/discovery/kubernetes"
	"github.com/prometheus/prometheus/discovery/targetgroup"
)

type change struct {
	Role, Source string
	Targets      []map[string]string
}

func main() {
	ctx := context.Background()
	registry := prometheus.NewRegistry()
	metrics := discovery.NewRefreshMetrics(registry)
	if err := discovery.RegisterK8sClientMetricsWithPrometheus(registry); err != nil {
		panic(err)
	}
	changes := make(chan change)
	for _, role := range os.Args[1:] {
		found := kubernetes.SDConfig{
			Role: kubernetes.Role(role), KubeConfig: os.Getenv("KUBECONFIG"), HTTPClientConfig: config.DefaultHTTPClientConfig,
		}
		own := found.NewDiscovererMetrics(registry, metrics)
		if err := own.Register(); err != nil && !strings.Contains(err.Error(), "duplicate") {
			panic(err)
		}
		discoverer, err := found.NewDiscoverer(discovery.DiscovererOptions{Logger: slog.New(slog.DiscardHandler), Metrics: own})
		if err != nil {
			panic(err)
		}
		groups := make(chan []*targetgroup.Group)
		go discoverer.Run(ctx, groups)
		go func() {
			for some := range groups {
				for _, group := range some {
					next := change{Role: role, Source: group.Source}
					for _, target := range group.Targets {
						labels := map[string]string{}
						for name, value := range group.Labels.Merge(target) {
							labels[string(name)] = string(value)
						}
						next.Targets = append(next.Targets, labels)
					}
					changes <- next
				}
			}
		}()
	}
	encoder := json.NewEncoder(os.Stdout)
	for each := range changes {
		_ = encoder.Encode(each)
	}
}
