// kube-scheduler with one more plugin, which tells why each node is refused.
//
// The plugin is an informational PostFilter: it writes the status of every node to stderr, as a line
// of JSON. As the last Filter it refuses all nodes to a pod that says so in an annotation, so that
// the reasons are also told of a pod that fits somewhere. All decisions are kube-scheduler's own.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
)

const (
	name   = "NodeReasons"
	refuse = "dralab.example/refuse-all-nodes"
)

type reporter struct{ handle fwk.Handle }

var (
	_ fwk.FilterPlugin     = &reporter{}
	_ fwk.PostFilterPlugin = &reporter{}
)

func (r *reporter) Name() string { return name }

func (r *reporter) Filter(_ context.Context, _ fwk.CycleState, pod *v1.Pod, _ fwk.NodeInfo) *fwk.Status {
	if _, found := pod.Annotations[refuse]; found {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "fits")
	}
	return nil
}

func (r *reporter) PostFilter(_ context.Context, _ fwk.CycleState, pod *v1.Pod, statuses fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	nodes, err := r.handle.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	reasons := map[string][]string{}
	for _, node := range nodes {
		reasons[node.Node().Name] = statuses.Get(node.Node().Name).Reasons()
	}
	line, err := json.Marshal(map[string]any{"pod": pod.Name, "reasons": reasons})
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	fmt.Fprintf(os.Stderr, "%s %s\n", name, line)
	return nil, fwk.NewStatus(fwk.Unschedulable)
}

func newReporter(_ context.Context, _ runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
	return &reporter{handle: handle}, nil
}

func main() {
	os.Exit(cli.Run(app.NewSchedulerCommand(app.WithPlugin(name, newReporter))))
}
