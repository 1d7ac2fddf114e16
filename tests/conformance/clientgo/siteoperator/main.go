// An operator for Sites on client-go, and with -bug one that breaks a promise.
//
// A Site gets a port that no other has, an entry in the ConfigMap directory, a ConfigMap for its
// settings, and a record in the namespace registry that a finalizer removes. The same operator in
// Python is tests/siteoperators.py.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/retry"
	"k8s.io/client-go/util/workqueue"
)

const (
	staleRead    = "stale-read"
	noRecheck    = "no-recheck"
	lostFinal    = "lost-finalizer"
	requeueStorm = "requeue-storm"
	orphan       = "orphan"

	finalizer = "example.com/record"
	firstPort = 8000
)

var sites = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "sites"}

type operator struct {
	bug    string
	sites  dynamic.ResourceInterface
	core   kubernetes.Interface
	lister cache.GenericLister
	queue  workqueue.TypedRateLimitingInterface[string]
	taken  map[int64]bool
	known  map[string]bool
}

func main() {
	bug := flag.String("bug", "", "the promise to break")
	kubeconfig := flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "where the server is")
	flag.Parse()
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	exitOn(err)
	config.QPS = -1
	dyn, err := dynamic.NewForConfig(config)
	exitOn(err)
	core, err := kubernetes.NewForConfig(config)
	exitOn(err)
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(dyn, 0, "default", nil)
	informer := factory.ForResource(sites)
	o := &operator{
		bug: *bug, core: core, lister: informer.Lister(), known: map[string]bool{},
		sites: dyn.Resource(sites).Namespace("default"),
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.DefaultTypedControllerRateLimiter[string]()),
	}
	add := func(obj any) {
		if name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
			o.queue.Add(name)
		}
	}
	_, err = informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: add, UpdateFunc: func(_, obj any) { add(obj) }, DeleteFunc: add,
	})
	exitOn(err)
	ctx := context.Background()
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	for {
		key, _ := o.queue.Get()
		if err := o.reconcile(ctx, key); err == nil {
			o.queue.Forget(key)
		} else if o.bug == requeueStorm {
			o.queue.Add(key)
		} else {
			o.queue.AddRateLimited(key)
		}
		o.queue.Done(key)
	}
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (o *operator) reconcile(ctx context.Context, key string) error {
	_, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return err
	}
	if o.bug == staleRead && o.taken == nil {
		// What the cache knows at the start may be old.
		o.taken = map[int64]bool{}
		known, err := o.lister.List(labels.Everything())
		if err != nil {
			return err
		}
		for _, obj := range known {
			o.taken[portOf(obj.(*unstructured.Unstructured))] = true
		}
	}
	// Not the cache's, which may show a site that is gone since before the last start.
	site, err := o.sites.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if site.GetDeletionTimestamp() != nil {
		return o.cleanUp(ctx, site)
	}
	if !slices.Contains(site.GetFinalizers(), finalizer) {
		site.SetFinalizers(append(site.GetFinalizers(), finalizer))
		if site, err = o.sites.Update(ctx, site, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	if o.bug == noRecheck && portOf(site) != 0 {
		return nil // what was done once is taken to last
	}
	if err := o.record(ctx, name); err != nil {
		return err
	}
	port, err := o.port(ctx, site)
	if err != nil {
		return err
	}
	entry := func(data map[string]string) { data[name] = "listed" }
	if err := o.changeDirectory(ctx, entry); err != nil {
		return err
	}
	settings, err := o.settings(ctx, site)
	if err != nil {
		return err
	}
	status, _, _ := unstructured.NestedMap(site.Object, "status")
	if status["settings"] == settings && portOf(site) == port {
		return nil
	}
	site.Object["status"] = map[string]any{"port": port, "settings": settings}
	_, err = o.sites.UpdateStatus(ctx, site, metav1.UpdateOptions{})
	return err
}

func (o *operator) cleanUp(ctx context.Context, site *unstructured.Unstructured) error {
	if !slices.Contains(site.GetFinalizers(), finalizer) {
		return nil
	}
	name := site.GetName()
	leave := func(data map[string]string) { delete(data, name) }
	if err := o.changeDirectory(ctx, leave); err != nil {
		return err
	}
	if o.bug == orphan {
		if made, found, _ := unstructured.NestedString(site.Object, "status", "settings"); found {
			err := o.core.CoreV1().ConfigMaps("default").Delete(ctx, made, metav1.DeleteOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		}
	}
	if o.bug == lostFinal {
		if err := o.release(ctx, site); err != nil {
			return err
		}
		return o.forget(ctx, name)
	}
	if err := o.forget(ctx, name); err != nil {
		return err
	}
	return o.release(ctx, site)
}

func (o *operator) release(ctx context.Context, site *unstructured.Unstructured) error {
	left := slices.DeleteFunc(site.GetFinalizers(), func(f string) bool { return f == finalizer })
	site.SetFinalizers(left)
	_, err := o.sites.Update(ctx, site, metav1.UpdateOptions{})
	return err
}

func portOf(site *unstructured.Unstructured) int64 {
	port, _, _ := unstructured.NestedInt64(site.Object, "status", "port")
	return port
}

func (o *operator) port(ctx context.Context, site *unstructured.Unstructured) (int64, error) {
	if port := portOf(site); port != 0 {
		return port, nil
	}
	taken := o.taken
	if o.bug != staleRead {
		// Asked of the server: two sites must never get one port.
		taken = map[int64]bool{}
		found, err := o.sites.List(ctx, metav1.ListOptions{})
		if err != nil {
			return 0, err
		}
		for _, other := range found.Items {
			taken[portOf(&other)] = true
		}
	}
	port := int64(firstPort)
	for taken[port] {
		port++
	}
	taken[port] = true
	return port, nil
}

// The directory is one object for all sites, which is not watched.
func (o *operator) changeDirectory(ctx context.Context, change func(map[string]string)) error {
	maps := o.core.CoreV1().ConfigMaps("default")
	write := func() error {
		directory, err := maps.Get(ctx, "directory", metav1.GetOptions{})
		if err != nil {
			return err
		}
		before := len(directory.Data)
		if directory.Data == nil {
			directory.Data = map[string]string{}
		}
		change(directory.Data)
		if len(directory.Data) == before {
			return nil
		}
		_, err = maps.Update(ctx, directory, metav1.UpdateOptions{})
		return err
	}
	if o.bug == noRecheck {
		// A conflict is taken for a sign that another write has done what is needed.
		if err := write(); !apierrors.IsConflict(err) {
			return err
		}
		return nil
	}
	return retry.RetryOnConflict(retry.DefaultRetry, write)
}

func (o *operator) settings(ctx context.Context, site *unstructured.Unstructured) (string, error) {
	maps := o.core.CoreV1().ConfigMaps("default")
	body := &corev1.ConfigMap{Data: map[string]string{"theme": "plain"}}
	body.Labels = map[string]string{"site": site.GetName()}
	if o.bug == orphan {
		// Known by the name in the status alone.
		if made, found, _ := unstructured.NestedString(site.Object, "status", "settings"); found {
			return made, nil
		}
		body.GenerateName = site.GetName() + "-"
		made, err := maps.Create(ctx, body, metav1.CreateOptions{})
		if err != nil {
			return "", err
		}
		return made.Name, nil
	}
	body.Name = site.GetName() + "-settings"
	body.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "example.com/v1", Kind: "Site", Name: site.GetName(), UID: site.GetUID(),
	}}
	_, err := maps.Create(ctx, body, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return "", err
	}
	return body.Name, nil
}

// The record is in another namespace, where no owner can reach it.
func (o *operator) record(ctx context.Context, name string) error {
	if o.bug == requeueStorm && o.known[name] {
		return nil
	}
	body := &corev1.ConfigMap{Data: map[string]string{"site": name}}
	body.Name = name
	_, err := o.core.CoreV1().ConfigMaps("registry").Create(ctx, body, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) && o.bug != requeueStorm {
		return nil
	}
	if err == nil {
		o.known[name] = true
	}
	return err
}

func (o *operator) forget(ctx context.Context, name string) error {
	err := o.core.CoreV1().ConfigMaps("registry").Delete(ctx, name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
