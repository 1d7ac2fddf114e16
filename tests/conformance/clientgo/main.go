// Scenarios of unmodified client-go against an API server: typed clients that speak protobuf,
// informers that begin with WatchList, leader election, server-side apply, events, custom resources.
//
//	go run . KUBECONFIG
//
// Prints one line for each scenario and ends with code 1 if one fails.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	applyappsv1 "k8s.io/client-go/applyconfigurations/apps/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	applymetav1 "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/util/retry"
)

const namespace = "default"

type lab struct {
	config *rest.Config
	client kubernetes.Interface
}

type scenario struct {
	name string
	run  func(context.Context, *lab) error
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: clientgo KUBECONFIG")
		os.Exit(2)
	}
	config, err := clientcmd.BuildConfigFromFlags("", os.Args[1])
	must(err)
	config.QPS, config.Burst = 200, 200
	// As components have it: typed clients speak protobuf.
	typed := rest.CopyConfig(config)
	typed.ContentType = "application/vnd.kubernetes.protobuf"
	typed.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	client, err := kubernetes.NewForConfig(typed)
	must(err)
	found := &lab{config: config, client: client}
	failed := false
	for _, s := range scenarios {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		if err := s.run(ctx, found); err != nil {
			failed = true
			fmt.Printf("FAILED %s: %v\n", s.name, err)
		} else {
			fmt.Printf("ok %s\n", s.name)
		}
		cancel()
	}
	if failed {
		os.Exit(1)
	}
}

var scenarios = []scenario{
	{"discovery", discover},
	{"create, defaults and errors", create},
	{"conflicts and retries", conflicts},
	{"informers", inform},
	{"field and label selectors", selectors},
	{"pages", pages},
	{"binding and status", bind},
	{"eviction", evict},
	{"scale", scaleIt},
	{"server-side apply", apply},
	{"leader election", elect},
	{"events", record},
	{"device claims", claims},
	{"custom resources", custom},
	{"metadata only", metadataOnly},
	{"deletion of collections", deleteAll},
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "main", Image: "registry.example/box:1"}},
		},
	}
}

func discover(ctx context.Context, l *lab) error {
	version, err := l.client.Discovery().ServerVersion()
	if err != nil {
		return err
	}
	groups, resources, err := l.client.Discovery().ServerGroupsAndResources()
	if err != nil {
		return err
	}
	if len(groups) < 15 || len(resources) < 15 {
		return fmt.Errorf("%d groups, %d lists of resources", len(groups), len(resources))
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(l.client.Discovery()))
	mapping, err := mapper.RESTMapping(schema.GroupKind{Group: "resource.k8s.io", Kind: "ResourceClaim"})
	if err != nil {
		return err
	}
	if mapping.Resource.Resource != "resourceclaims" || version.Major != "1" {
		return fmt.Errorf("%v, version %v", mapping.Resource, version)
	}
	paths, err := l.client.Discovery().OpenAPIV3().Paths()
	if err != nil {
		return err
	}
	_, err = paths["api/v1"].Schema("application/json")
	return err
}

func create(ctx context.Context, l *lab) error {
	pods := l.client.CoreV1().Pods(namespace)
	made, err := pods.Create(ctx, pod("box"), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if made.Spec.RestartPolicy != corev1.RestartPolicyAlways || made.Status.Phase != corev1.PodPending {
		return fmt.Errorf("defaults: %v, %v", made.Spec.RestartPolicy, made.Status.Phase)
	}
	if _, err := pods.Create(ctx, pod("box"), metav1.CreateOptions{}); !errors.IsAlreadyExists(err) {
		return fmt.Errorf("a second create: %v", err)
	}
	if _, err := pods.Get(ctx, "nobody", metav1.GetOptions{}); !errors.IsNotFound(err) {
		return fmt.Errorf("nobody: %v", err)
	}
	wrong := pod("wrong")
	wrong.Spec.Containers = nil
	if _, err := pods.Create(ctx, wrong, metav1.CreateOptions{}); !errors.IsInvalid(err) {
		return fmt.Errorf("no containers: %v", err)
	}
	zero := int32(0)
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "none"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &zero,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "none"}},
			Template: corev1.PodTemplateSpec{ObjectMeta: pod("none").ObjectMeta, Spec: pod("none").Spec},
		},
	}
	deployment.Spec.Template.Name = ""
	stored, err := l.client.AppsV1().Deployments(namespace).Create(ctx, deployment, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if *stored.Spec.Replicas != 0 {
		return fmt.Errorf("an explicit zero became %d", *stored.Spec.Replicas)
	}
	return nil
}

func conflicts(ctx context.Context, l *lab) error {
	maps := l.client.CoreV1().ConfigMaps(namespace)
	first, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "shared"}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	second := first.DeepCopy()
	first.Data = map[string]string{"a": "1"}
	if _, err := maps.Update(ctx, first, metav1.UpdateOptions{}); err != nil {
		return err
	}
	second.Data = map[string]string{"b": "2"}
	if _, err := maps.Update(ctx, second, metav1.UpdateOptions{}); !errors.IsConflict(err) {
		return fmt.Errorf("a stale update: %v", err)
	}
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		current, err := maps.Get(ctx, "shared", metav1.GetOptions{})
		if err != nil {
			return err
		}
		current.Data["b"] = "2"
		_, err = maps.Update(ctx, current, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	patch := []byte(`{"data":{"c":"3"}}`)
	found, err := maps.Patch(ctx, "shared", types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return err
	}
	if len(found.Data) != 3 {
		return fmt.Errorf("data: %v", found.Data)
	}
	return nil
}

func inform(ctx context.Context, l *lab) error {
	factory := informers.NewSharedInformerFactoryWithOptions(l.client, 0, informers.WithNamespace(namespace))
	var added, updated, deleted atomic.Int32
	informer := factory.Core().V1().ConfigMaps().Informer()
	registered, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { added.Add(1) },
		UpdateFunc: func(any, any) { updated.Add(1) },
		DeleteFunc: func(any) { deleted.Add(1) },
	})
	if err != nil {
		return err
	}
	factory.Core().V1().Pods().Informer()
	factory.Apps().V1().Deployments().Informer()
	factory.Resource().V1().ResourceClaims().Informer()
	factory.Start(ctx.Done())
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return fmt.Errorf("%v did not sync", kind)
		}
	}
	if !cache.WaitForCacheSync(ctx.Done(), registered.HasSynced) {
		return fmt.Errorf("the handler did not hear of what was there")
	}
	before := added.Load()
	maps := l.client.CoreV1().ConfigMaps(namespace)
	for number := range 20 {
		name := fmt.Sprintf("watched-%d", number)
		made, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		made.Data = map[string]string{"x": "y"}
		if _, err := maps.Update(ctx, made, metav1.UpdateOptions{}); err != nil {
			return err
		}
		if err := maps.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	return eventually(ctx, func() error {
		if added.Load()-before != 20 || updated.Load() != 20 || deleted.Load() != 20 {
			return fmt.Errorf("added %d, updated %d, deleted %d", added.Load()-before, updated.Load(), deleted.Load())
		}
		return nil
	})
}

func selectors(ctx context.Context, l *lab) error {
	pods := l.client.CoreV1().Pods(namespace)
	selector := fields.OneTermEqualSelector("spec.nodeName", "").String()
	found, err := pods.List(ctx, metav1.ListOptions{LabelSelector: "app in (box,other)", FieldSelector: selector})
	if err != nil {
		return err
	}
	if len(found.Items) != 1 {
		return fmt.Errorf("%d pods", len(found.Items))
	}
	_, err = pods.List(ctx, metav1.ListOptions{FieldSelector: "spec.frob=1"})
	if !errors.IsBadRequest(err) {
		return fmt.Errorf("an unknown field: %v", err)
	}
	return nil
}

func pages(ctx context.Context, l *lab) error {
	maps := l.client.CoreV1().ConfigMaps(namespace)
	for number := range 25 {
		item := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: fmt.Sprintf("page-%02d-", number), Labels: map[string]string{"page": "yes"}}}
		if _, err := maps.Create(ctx, item, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	all := pager.New(pager.SimplePageFunc(func(options metav1.ListOptions) (runtime.Object, error) {
		return maps.List(ctx, options)
	}))
	all.PageSize = 10
	count := 0
	err := all.EachListItem(ctx, metav1.ListOptions{LabelSelector: "page=yes"}, func(runtime.Object) error {
		count++
		return nil
	})
	if err == nil && count != 25 {
		err = fmt.Errorf("%d items", count)
	}
	return err
}

func bind(ctx context.Context, l *lab) error {
	nodes, pods := l.client.CoreV1().Nodes(), l.client.CoreV1().Pods(namespace)
	if _, err := nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: "box", Namespace: namespace},
		Target:     corev1.ObjectReference{Kind: "Node", Name: "n1"},
	}
	if err := pods.Bind(ctx, binding, metav1.CreateOptions{}); err != nil {
		return err
	}
	if err := pods.Bind(ctx, binding, metav1.CreateOptions{}); !errors.IsConflict(err) {
		return fmt.Errorf("a second binding: %v", err)
	}
	found, err := pods.Get(ctx, "box", metav1.GetOptions{})
	if err != nil {
		return err
	}
	found.Status.Phase = corev1.PodRunning
	found.Spec.NodeName = "elsewhere"
	found, err = pods.UpdateStatus(ctx, found, metav1.UpdateOptions{})
	if err != nil {
		return err
	}
	if found.Spec.NodeName != "n1" || found.Status.Phase != corev1.PodRunning {
		return fmt.Errorf("node %q, phase %q", found.Spec.NodeName, found.Status.Phase)
	}
	return nil
}

func evict(ctx context.Context, l *lab) error {
	pods := l.client.CoreV1().Pods(namespace)
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "box", Namespace: namespace}}
	if err := pods.EvictV1(ctx, eviction); err != nil {
		return err
	}
	found, err := pods.Get(ctx, "box", metav1.GetOptions{})
	if err != nil {
		return err
	}
	if found.DeletionTimestamp == nil {
		return fmt.Errorf("a running pod is evicted with grace")
	}
	now := int64(0)
	return pods.Delete(ctx, "box", metav1.DeleteOptions{GracePeriodSeconds: &now})
}

func scaleIt(ctx context.Context, l *lab) error {
	deployments := l.client.AppsV1().Deployments(namespace)
	found, err := deployments.GetScale(ctx, "none", metav1.GetOptions{})
	if err != nil {
		return err
	}
	found.Spec = autoscalingv1.ScaleSpec{Replicas: 4}
	if _, err := deployments.UpdateScale(ctx, "none", found, metav1.UpdateOptions{}); err != nil {
		return err
	}
	deployment, err := deployments.Get(ctx, "none", metav1.GetOptions{})
	if err == nil && *deployment.Spec.Replicas != 4 {
		err = fmt.Errorf("%d replicas", *deployment.Spec.Replicas)
	}
	return err
}

func apply(ctx context.Context, l *lab) error {
	deployments := l.client.AppsV1().Deployments(namespace)
	labels := map[string]string{"app": "applied"}
	wanted := func(image string) *applyappsv1.DeploymentApplyConfiguration {
		container := applycorev1.Container().WithName("main").WithImage(image)
		template := applycorev1.PodTemplateSpec().WithLabels(labels).WithSpec(applycorev1.PodSpec().WithContainers(container))
		spec := applyappsv1.DeploymentSpec().WithSelector(applymetav1.LabelSelector().WithMatchLabels(labels)).WithTemplate(template)
		return applyappsv1.Deployment("applied", namespace).WithSpec(spec)
	}
	if _, err := deployments.Apply(ctx, wanted("one"), metav1.ApplyOptions{FieldManager: "ann"}); err != nil {
		return err
	}
	_, err := deployments.Apply(ctx, wanted("two"), metav1.ApplyOptions{FieldManager: "bob"})
	if !errors.IsConflict(err) {
		return fmt.Errorf("somebody else's image: %v", err)
	}
	found, err := deployments.Apply(ctx, wanted("two"), metav1.ApplyOptions{FieldManager: "bob", Force: true})
	if err != nil {
		return err
	}
	if image := found.Spec.Template.Spec.Containers[0].Image; image != "two" {
		return fmt.Errorf("image %q", image)
	}
	mine, err := applyappsv1.ExtractDeployment(found, "bob")
	if err != nil {
		return err
	}
	if mine.Spec == nil || *mine.Spec.Template.Spec.Containers[0].Image != "two" {
		return fmt.Errorf("what bob owns cannot be extracted")
	}
	return nil
}

func elect(ctx context.Context, l *lab) error {
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	leading := make(chan string, 1)
	for _, name := range []string{"a", "b"} {
		lock := &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Name: "leader", Namespace: namespace},
			Client:     l.client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: name},
		}
		go leaderelection.RunOrDie(within, leaderelection.LeaderElectionConfig{
			Lock:          lock,
			LeaseDuration: 5 * time.Second,
			RenewDeadline: 3 * time.Second,
			RetryPeriod:   200 * time.Millisecond,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) { leading <- name },
				OnStoppedLeading: func() {},
			},
		})
	}
	select {
	case first := <-leading:
		select {
		case second := <-leading:
			return fmt.Errorf("%s and %s both lead", first, second)
		case <-time.After(time.Second):
			return nil
		}
	case <-ctx.Done():
		return ctx.Err()
	}
}

func record(ctx context.Context, l *lab) error {
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: l.client.EventsV1()})
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return err
	}
	defer broadcaster.Shutdown()
	about, err := l.client.CoreV1().Pods(namespace).Create(ctx, pod("noted"), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	recorder := broadcaster.NewRecorder(scheme.Scheme, "lab")
	for range 3 {
		recorder.Eventf(about, nil, corev1.EventTypeNormal, "Seen", "Looking", "seen in the %s", "lab")
	}
	return eventually(ctx, func() error {
		selector := fields.Set{"involvedObject.name": "noted", "reason": "Seen"}.String()
		found, err := l.client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: selector})
		if err != nil {
			return err
		}
		if len(found.Items) != 1 || found.Items[0].Message != "seen in the lab" {
			return fmt.Errorf("%d events in core/v1", len(found.Items))
		}
		return nil
	})
}

func claims(ctx context.Context, l *lab) error {
	api := l.client.ResourceV1()
	index := int64(0)
	slice := &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "n1-gpus"},
		Spec: resourcev1.ResourceSliceSpec{
			Driver:   "gpu.example.com",
			NodeName: ptr("n1"),
			Pool:     resourcev1.ResourcePool{Name: "n1", Generation: 1, ResourceSliceCount: 1},
			Devices: []resourcev1.Device{{
				Name:       "gpu-0",
				Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"index": {IntValue: &index}},
			}},
		},
	}
	made, err := api.ResourceSlices().Create(ctx, slice, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if value := made.Spec.Devices[0].Attributes["index"].IntValue; value == nil || *value != 0 {
		return fmt.Errorf("the attribute 0 became %v", value)
	}
	claim := &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "one"},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{
			Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu"},
		}}}},
	}
	stored, err := api.ResourceClaims(namespace).Create(ctx, claim, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	stored.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
		Results: []resourcev1.DeviceRequestAllocationResult{{Request: "gpu", Driver: "gpu.example.com", Pool: "n1", Device: "gpu-0"}},
	}}
	stored.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: "noted", UID: "1"}}
	stored, err = api.ResourceClaims(namespace).UpdateStatus(ctx, stored, metav1.UpdateOptions{})
	if err != nil {
		return err
	}
	stored.Status.Allocation = nil
	if _, err = api.ResourceClaims(namespace).UpdateStatus(ctx, stored, metav1.UpdateOptions{}); !errors.IsInvalid(err) {
		return fmt.Errorf("deallocating what is reserved: %v", err)
	}
	return nil
}

func custom(ctx context.Context, l *lab) error {
	client, err := apiextensions.NewForConfig(l.config)
	if err != nil {
		return err
	}
	free := true
	definition := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "racks.lab.example"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "lab.example",
			Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "racks", Kind: "Rack"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object",
					Properties: map[string]apiextensionsv1.JSONSchemaProps{
						"spec": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
							"slots": {Type: "integer", Default: &apiextensionsv1.JSON{Raw: []byte("4")}},
							"open":  {Type: "object", XPreserveUnknownFields: &free},
						}},
					},
				}},
			}},
		},
	}
	if _, err := client.ApiextensionsV1().CustomResourceDefinitions().Create(ctx, definition, metav1.CreateOptions{}); err != nil {
		return err
	}
	racks := dynamic.NewForConfigOrDie(l.config).Resource(schema.GroupVersionResource{Group: "lab.example", Version: "v1", Resource: "racks"}).Namespace(namespace)
	rack := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "lab.example/v1", "kind": "Rack",
		"metadata": map[string]any{"name": "r1"},
		"spec":     map[string]any{"open": map[string]any{"a": "b"}, "unknown": int64(1)},
	}}
	var made *unstructured.Unstructured
	err = eventually(ctx, func() error {
		made, err = racks.Create(ctx, rack, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	text, err := json.Marshal(made.Object["spec"])
	if err != nil || string(text) != `{"open":{"a":"b"},"slots":4}` {
		return fmt.Errorf("spec: %s %v", text, err)
	}
	cached := discovery.NewDiscoveryClientForConfigOrDie(l.config)
	if _, err := cached.ServerResourcesForGroupVersion("lab.example/v1"); err != nil {
		return err
	}
	_, err = racks.Apply(ctx, "r1", &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "lab.example/v1", "kind": "Rack",
		"metadata": map[string]any{"name": "r1"},
		"spec":     map[string]any{"slots": int64(7)},
	}}, metav1.ApplyOptions{FieldManager: "ann", Force: true})
	return err
}

func metadataOnly(ctx context.Context, l *lab) error {
	client := metadata.NewForConfigOrDie(l.config)
	pods := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).Namespace(namespace)
	found, err := pods.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if len(found.Items) == 0 || found.Items[0].Name == "" || found.Items[0].UID == "" {
		return fmt.Errorf("%d items", len(found.Items))
	}
	return nil
}

func deleteAll(ctx context.Context, l *lab) error {
	maps := l.client.CoreV1().ConfigMaps(namespace)
	if err := maps.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "page=yes"}); err != nil {
		return err
	}
	left, err := maps.List(ctx, metav1.ListOptions{LabelSelector: "page=yes"})
	if err == nil && len(left.Items) != 0 {
		err = fmt.Errorf("%d are left", len(left.Items))
	}
	return err
}

func eventually(ctx context.Context, holds func() error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 15*time.Second, true, func(context.Context) (bool, error) {
		last = holds()
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("%v: %v", err, last)
	}
	return nil
}

func ptr[T any](value T) *T { return &value }

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
