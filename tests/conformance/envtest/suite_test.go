// A suite as kubebuilder scaffolds it: envtest with a definition, a controller, a webhook, users and
// kubectl. KUBEBUILDER_ASSETS names the programs.
package envtestsuite

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

var widgets = schema.GroupVersionKind{Group: "lab.example", Version: "v1", Kind: "Widget"}

func definition() *apiextensionsv1.CustomResourceDefinition {
	keeps := true
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.lab.example"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "lab.example",
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: "Widget", Plural: "widgets"},
			Scope: apiextensionsv1.NamespaceScoped,
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: &keeps,
				}},
			}},
		},
	}
}

func validating() *admissionv1.ValidatingWebhookConfiguration {
	path, none := "/validate", admissionv1.SideEffectClassNone
	return &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets"},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "widgets.lab.example", SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
			ClientConfig: admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Name: "s", Namespace: "default", Path: &path}},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{"lab.example"}, APIVersions: []string{"v1"}, Resources: []string{"widgets"}},
			}},
		}},
	}
}

func widget(name string) *unstructured.Unstructured {
	made := &unstructured.Unstructured{}
	made.SetGroupVersionKind(widgets)
	made.SetNamespace("default")
	made.SetName(name)
	return made
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if holds() {
			return
		}
	}
	t.Fatalf("not in time: %s", what)
}

func TestSuite(t *testing.T) {
	log.SetLogger(zap.New(zap.WriteTo(io.Discard)))
	began := time.Now()
	env := &envtest.Environment{
		CRDs:                  []*apiextensionsv1.CustomResourceDefinition{definition()},
		WebhookInstallOptions: envtest.WebhookInstallOptions{ValidatingWebhooks: []*admissionv1.ValidatingWebhookConfiguration{validating()}},
	}
	config, err := env.Start()
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("started in %.2f s\n", time.Since(began).Seconds())
	defer func() {
		stopping := time.Now()
		if err := env.Stop(); err != nil {
			t.Error(err)
		}
		fmt.Printf("stopped in %.2f s\n", time.Since(stopping).Seconds())
	}()

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	options := env.WebhookInstallOptions
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Metrics: metricsserver.Options{BindAddress: "0"}, LeaderElection: true, LeaderElectionID: "widgets", LeaderElectionNamespace: "default",
		WebhookServer: webhook.NewServer(webhook.Options{Host: options.LocalServingHost, Port: options.LocalServingPort, CertDir: options.LocalServingCertDir}),
	})
	if err != nil {
		t.Fatal(err)
	}
	manager.GetWebhookServer().Register("/validate", &webhook.Admission{Handler: admission.HandlerFunc(
		func(_ context.Context, request admission.Request) admission.Response {
			if strings.HasPrefix(request.Name, "bad") {
				return admission.Denied("bad names are not for widgets")
			}
			return admission.Allowed("")
		})})
	watched := widget("")
	err = ctrl.NewControllerManagedBy(manager).For(watched).Owns(&corev1.ConfigMap{}).Named("widgets").Complete(reconcile.Func(
		func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
			found := widget("")
			if err := manager.GetClient().Get(ctx, request.NamespacedName, found); err != nil {
				return reconcile.Result{}, client.IgnoreNotFound(err)
			}
			owned := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: found.GetName(), Namespace: found.GetNamespace()}}
			if err := ctrl.SetControllerReference(found, owned, scheme.Scheme); err != nil {
				return reconcile.Result{}, err
			}
			if err := manager.GetClient().Create(ctx, owned); err != nil && !apierrors.IsAlreadyExists(err) {
				return reconcile.Result{}, err
			}
			_ = unstructured.SetNestedField(found.Object, true, "status", "ready")
			return reconcile.Result{}, manager.GetClient().Status().Update(ctx, found)
		}))
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		if err := manager.Start(ctx); err != nil {
			t.Error(err)
		}
	}()
	direct, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "webhook", func() bool { return manager.GetWebhookServer().StartedChecker()(&http.Request{}) == nil })

	if err := direct.Create(ctx, widget("good")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "status", func() bool {
		found := widget("")
		err := direct.Get(ctx, client.ObjectKey{Namespace: "default", Name: "good"}, found)
		ready, _, _ := unstructured.NestedBool(found.Object, "status", "ready")
		return err == nil && ready
	})
	if err := direct.Create(ctx, widget("bad")); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "bad names") {
		t.Errorf("the webhook: %v", err)
	}
	// No controllers: an owned object stays, and a namespace that is deleted too.
	if err := direct.Delete(ctx, widget("good")); err != nil {
		t.Error(err)
	}

	user, err := env.AddUser(envtest.User{Name: "jane", Groups: []string{"readers"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	asUser, err := client.New(user.Config(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := asUser.List(ctx, &corev1.ConfigMapList{}); !apierrors.IsForbidden(err) {
		t.Errorf("without a role: %v", err)
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "reader"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"}},
	}}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		RoleRef:  rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "reader"},
		Subjects: []rbacv1.Subject{{APIGroup: "rbac.authorization.k8s.io", Kind: "Group", Name: "readers"}}}
	for _, each := range []client.Object{role, binding} {
		if err := direct.Create(ctx, each); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "a role", func() bool { return asUser.List(ctx, &corev1.ConfigMapList{}) == nil })

	kubectl, err := user.Kubectl()
	if err != nil {
		t.Fatal(err)
	}
	said, _, err := kubectl.Run("get", "configmaps", "--namespace", "default", "-o", "name")
	if err != nil {
		t.Skipf("kubectl: %v", err)
	}
	if text, _ := io.ReadAll(said); !strings.Contains(string(text), "configmap/good") {
		t.Errorf("kubectl: %s", text)
	}
}
