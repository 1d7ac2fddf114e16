// The kubelet's own code for DRA plugins, without the rest of a kubelet: it registers the plugins
// of a directory, prepares the claims of one pod, and gives them back when stdin ends.
//
//	kubeletdra KUBECONFIG ROOT NODE NAMESPACE/POD
//
// Prints a line of JSON for each step.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm/dra"
	"k8s.io/kubernetes/pkg/kubelet/config"
	"k8s.io/kubernetes/pkg/kubelet/pluginmanager"
)

func main() {
	if len(os.Args) != 5 {
		fail("usage: kubeletdra KUBECONFIG ROOT NODE NAMESPACE/POD")
	}
	root, node := os.Args[2], os.Args[3]
	namespace, name, _ := strings.Cut(os.Args[4], "/")
	access, err := clientcmd.BuildConfigFromFlags("", os.Args[1])
	check(err)
	client, err := kubernetes.NewForConfig(access)
	check(err)
	ctx := context.Background()

	manager, err := dra.NewManager(klog.Background(), client, root)
	check(err)
	ready := config.NewSourcesReady(func(sets.Set[string]) bool { return true })
	check(manager.Start(ctx,
		func() []*v1.Pod { return nil },
		func(ctx context.Context) (*v1.Node, error) {
			return client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		},
		ready,
	))
	plugins := pluginmanager.NewPluginManager(filepath.Join(root, "plugins_registry"), &record.FakeRecorder{})
	plugins.AddHandler("DRAPlugin", manager.GetWatcherHandler())
	go plugins.Run(ctx, ready, make(chan struct{}))

	pod, err := client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	check(err)
	until(func() error { return manager.PrepareResources(ctx, pod) })
	// Once more: what is prepared is not asked for again.
	check(manager.PrepareResources(ctx, pod))
	var ids []string
	found, err := manager.GetResources(pod, &pod.Spec.Containers[0])
	check(err)
	for _, device := range found.CDIDevices {
		ids = append(ids, device.Name)
	}
	tell(map[string]any{"prepared": ids})

	stdin := bufio.NewScanner(os.Stdin)
	for stdin.Scan() {
		status := &v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: pod.Spec.Containers[0].Name}}}
		manager.UpdateAllocatedResourcesStatus(pod, status)
		tell(map[string]any{"status": status.ContainerStatuses[0].AllocatedResourcesStatus})
	}
	check(manager.UnprepareResources(ctx, pod))
	tell(map[string]any{"unprepared": true})
}

func until(attempt func() error) {
	var err error
	for range 100 {
		if err = attempt(); err == nil {
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
	check(err)
}

func tell(what map[string]any) {
	text, err := json.Marshal(what)
	check(err)
	fmt.Println(string(text))
}

func check(err error) {
	if err != nil {
		fail(err.Error())
	}
}

func fail(text string) {
	fmt.Fprintln(os.Stderr, text)
	os.Exit(1)
}
