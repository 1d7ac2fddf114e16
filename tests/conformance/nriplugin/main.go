// A plugin made with NRI's own Go library: it notes what it is told, and changes containers.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
)

type plugin struct{}

func (plugin) Synchronize(_ context.Context, pods []*api.PodSandbox, containers []*api.Container) ([]*api.ContainerUpdate, error) {
	fmt.Println("Synchronize", len(pods), len(containers))
	return nil, nil
}

func (plugin) RunPodSandbox(_ context.Context, pod *api.PodSandbox) error {
	fmt.Println("RunPodSandbox", pod.GetName())
	return nil
}

func (plugin) CreateContainer(_ context.Context, pod *api.PodSandbox, container *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	fmt.Println("CreateContainer", container.GetName(), len(container.GetEnv()) > 0)
	adjustment := &api.ContainerAdjustment{}
	adjustment.AddEnv("FROM_NRI", pod.GetName())
	adjustment.SetLinuxCPUSetCPUs("0")
	return adjustment, nil, nil
}

func (plugin) StopContainer(_ context.Context, _ *api.PodSandbox, container *api.Container) ([]*api.ContainerUpdate, error) {
	fmt.Println("StopContainer", container.GetName())
	return nil, nil
}

func (plugin) RemoveContainer(_ context.Context, _ *api.PodSandbox, container *api.Container) error {
	fmt.Println("RemoveContainer", container.GetName())
	return nil
}

func (plugin) StopPodSandbox(_ context.Context, pod *api.PodSandbox) error {
	fmt.Println("StopPodSandbox", pod.GetName())
	return nil
}

func (plugin) RemovePodSandbox(_ context.Context, pod *api.PodSandbox) error {
	fmt.Println("RemovePodSandbox", pod.GetName())
	return nil
}

func main() {
	made, err := stub.New(plugin{}, stub.WithPluginName("go"), stub.WithPluginIdx("10"), stub.WithSocketPath(os.Args[1]))
	if err == nil {
		err = made.Run(context.Background())
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}
