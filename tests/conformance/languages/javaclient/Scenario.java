
import io.kubernetes.client.Copy;
import io.kubernetes.client.Exec;
import io.kubernetes.client.PodLogs;
import io.kubernetes.client.PortForward;
import io.kubernetes.client.custom.V1Patch;
import io.kubernetes.client.extended.leaderelection.LeaderElectionConfig;
import io.kubernetes.client.extended.leaderelection.LeaderElector;
import io.kubernetes.client.extended.leaderelection.resourcelock.LeaseLock;
import io.kubernetes.client.informer.ResourceEventHandler;
import io.kubernetes.client.informer.SharedIndexInformer;
import io.kubernetes.client.informer.SharedInformerFactory;
import io.kubernetes.client.openapi.ApiClient;
import io.kubernetes.client.openapi.ApiException;
import io.kubernetes.client.openapi.apis.CoreV1Api;
import io.kubernetes.client.openapi.models.V1ConfigMap;
import io.kubernetes.client.openapi.models.V1ConfigMapList;
import io.kubernetes.client.openapi.models.V1Container;
import io.kubernetes.client.openapi.models.V1ObjectMeta;
import io.kubernetes.client.openapi.models.V1Pod;
import io.kubernetes.client.openapi.models.V1PodSpec;
import io.kubernetes.client.util.CallGeneratorParams;
import io.kubernetes.client.util.Config;
import io.kubernetes.client.util.Watch;
import io.kubernetes.client.util.generic.GenericKubernetesApi;
import io.kubernetes.client.util.generic.options.PatchOptions;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** The official Java client at its main job, against the cluster of KUBECONFIG. Prints "ok NAME" for each scenario. */
public class Scenario {
  static final String NAMESPACE = "default";

  interface Step {
    void run() throws Exception;
  }

  static void check(boolean holds, String what) {
    if (!holds) {
      throw new AssertionError(what);
    }
  }

  static void run(String name, Step step) {
    try {
      step.run();
      System.out.println("ok " + name);
    } catch (ApiException error) {
      System.out.println("failed " + name + ": " + error.getResponseBody());
    } catch (Throwable error) {
      System.out.println("failed " + name + ": " + error);
      error.printStackTrace();
    }
  }

  static void until(Callable<Boolean> holds, String what) throws Exception {
    for (int turn = 0; turn < 400; turn++) {
      if (holds.call()) {
        return;
      }
      Thread.sleep(50);
    }
    throw new AssertionError("not in time: " + what);
  }

  static V1ConfigMap map(String name, String value) {
    return new V1ConfigMap()
        .apiVersion("v1").kind("ConfigMap")
        .metadata(new V1ObjectMeta().name(name).namespace(NAMESPACE).putLabelsItem("made", "java"))
        .putDataItem("key", value);
  }

  static void crud(ApiClient client, CoreV1Api api) throws Exception {
    V1ConfigMap made = api.createNamespacedConfigMap(NAMESPACE, map("typed", "one")).execute();
    made.putDataItem("key", "two");
    api.replaceNamespacedConfigMap("typed", NAMESPACE, made).execute();
    try {
      api.replaceNamespacedConfigMap("typed", NAMESPACE, made).execute();
      check(false, "written over");
    } catch (ApiException error) {
      check(error.getCode() == 409, "conflict");
    }
    var maps = new GenericKubernetesApi<>(V1ConfigMap.class, V1ConfigMapList.class, "", "v1", "configmaps", client);
    PatchOptions options = new PatchOptions();
    options.setFieldManager("java");
    String patch = "{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"data\":{\"other\":\"applied\"}}";
    V1ConfigMap applied = maps.patch(NAMESPACE, "typed", V1Patch.PATCH_FORMAT_APPLY_YAML, new V1Patch(patch), options).getObject();
    check(applied.getData().equals(Map.of("key", "two", "other", "applied")), "applied");
    check(api.listNamespacedConfigMap(NAMESPACE).labelSelector("made=java").execute().getItems().size() == 1, "listed");
    api.deleteNamespacedConfigMap("typed", NAMESPACE).execute();
  }

  static void watch(ApiClient client, CoreV1Api api) throws Exception {
    var call = api.listNamespacedConfigMap(NAMESPACE).labelSelector("made=java").watch(true).buildCall(null);
    var type = new com.google.gson.reflect.TypeToken<Watch.Response<V1ConfigMap>>() {}.getType();
    try (Watch<V1ConfigMap> watch = Watch.createWatch(client, call, type)) {
      api.createNamespacedConfigMap(NAMESPACE, map("seen", "one")).execute();
      api.deleteNamespacedConfigMap("seen", NAMESPACE).execute();
      for (String wanted : new String[] {"ADDED", "DELETED"}) {
        Watch.Response<V1ConfigMap> event = watch.next();
        check(event.type.equals(wanted) && event.object.getMetadata().getName().equals("seen"), wanted);
      }
    }
  }

  static void informer(ApiClient client, CoreV1Api api) throws Exception {
    BlockingQueue<String> added = new LinkedBlockingQueue<>();
    api.createNamespacedConfigMap(NAMESPACE, map("first", "one")).execute();
    SharedInformerFactory factory = new SharedInformerFactory(client);
    SharedIndexInformer<V1ConfigMap> informer = factory.sharedIndexInformerFor(
        (CallGeneratorParams parameters) -> api.listNamespacedConfigMap(NAMESPACE).labelSelector("made=java")
            .resourceVersion(parameters.resourceVersion).timeoutSeconds(parameters.timeoutSeconds).watch(parameters.watch).buildCall(null),
        V1ConfigMap.class, V1ConfigMapList.class);
    informer.addEventHandler(new ResourceEventHandler<V1ConfigMap>() {
      @Override
      public void onAdd(V1ConfigMap object) {
        added.add(object.getMetadata().getName());
      }

      @Override
      public void onUpdate(V1ConfigMap before, V1ConfigMap after) {}

      @Override
      public void onDelete(V1ConfigMap object, boolean unknown) {
        added.add("-" + object.getMetadata().getName());
      }
    });
    factory.startAllRegisteredInformers();
    check("first".equals(added.poll(20, TimeUnit.SECONDS)), "first");
    api.createNamespacedConfigMap(NAMESPACE, map("second", "two")).execute();
    check("second".equals(added.poll(20, TimeUnit.SECONDS)), "second");
    check(informer.getIndexer().list().size() == 2, "store");
    for (String name : new String[] {"first", "second"}) {
      api.deleteNamespacedConfigMap(name, NAMESPACE).execute();
      check(("-" + name).equals(added.poll(20, TimeUnit.SECONDS)), name + " deleted");
    }
    factory.stopAllRegisteredInformers();
  }

  static void elects(ApiClient client) throws Exception {
    CompletableFuture<Void> leads = new CompletableFuture<>();
    var config = new LeaderElectionConfig(new LeaseLock(NAMESPACE, "java", "me", client),
        Duration.ofSeconds(4), Duration.ofSeconds(3), Duration.ofSeconds(1));
    LeaderElector elector = new LeaderElector(config);
    Thread thread = new Thread(() -> elector.run(() -> leads.complete(null), () -> {}));
    thread.setDaemon(true);
    thread.start();
    leads.get(20, TimeUnit.SECONDS);
    elector.close();
  }

  static void start(CoreV1Api api, String name, String... command) throws Exception {
    V1PodSpec spec = new V1PodSpec().terminationGracePeriodSeconds(0L)
        .addContainersItem(new V1Container().name("c").image("x").command(List.of(command)));
    api.createNamespacedPod(NAMESPACE, new V1Pod().metadata(new V1ObjectMeta().name(name)).spec(spec)).execute();
    until(() -> "Running".equals(api.readNamespacedPod(name, NAMESPACE).execute().getStatus().getPhase()), name);
  }

  static void logs(ApiClient client, CoreV1Api api) throws Exception {
    String whole = api.readNamespacedPodLog("java", NAMESPACE).execute();
    check(whole.equals("hello\nagain\n"), "log: " + whole);
    var followed = new PodLogs(client).streamNamespacedPodLog(api.readNamespacedPod("java", NAMESPACE).execute());
    var lines = new BufferedReader(new InputStreamReader(followed));
    check("hello".equals(lines.readLine()) && "again".equals(lines.readLine()), "followed");
  }

  static void executes(ApiClient client) throws Exception {
    Process process = new Exec(client).exec(NAMESPACE, "java", new String[] {"sh", "-c", "read line; echo got $line; echo oh >&2; exit 4"}, "c", true, false);
    var output = process.getInputStream();
    var errors = process.getErrorStream();
    process.getOutputStream().write("typed\n".getBytes(StandardCharsets.UTF_8));
    process.getOutputStream().flush();
    String out = new String(output.readAllBytes(), StandardCharsets.UTF_8);
    String err = new String(errors.readAllBytes(), StandardCharsets.UTF_8);
    process.waitFor();
    check(out.equals("got typed\n") && err.equals("oh\n"), "outputs: " + out + err);
    check(process.exitValue() == 4, "code");
  }

  static void copies(ApiClient client, Path place) throws Exception {
    byte[] content = new byte[1 << 20];
    new Random(1).nextBytes(content);
    Path here = place.resolve("java");
    Path there = place.resolve("java-there");
    Path back = place.resolve("java-back");
    Files.write(here, content);
    Copy copy = new Copy(client);
    copy.copyFileToPod(NAMESPACE, "java", "c", here, there);
    check(Arrays.equals(Files.readAllBytes(there), content), "content");
    copy.copyFileFromPod(NAMESPACE, "java", "c", there.toString(), back);
    check(Arrays.equals(Files.readAllBytes(back), content), "content that came back");
  }

  static void forwards(ApiClient client, CoreV1Api api) throws Exception {
    String script = "import http.server as h; s = h.ThreadingHTTPServer(('127.0.0.1', 0), h.SimpleHTTPRequestHandler);"
        + "print(s.server_address[1], flush=True); s.serve_forever()";
    start(api, "serves", "python3", "-c", script);
    until(() -> api.readNamespacedPodLog("serves", NAMESPACE).execute() != null, "port");
    int port = Integer.parseInt(api.readNamespacedPodLog("serves", NAMESPACE).execute().strip());
    var forward = new PortForward(client).forward(NAMESPACE, "serves", List.of(port));
    var lines = new BufferedReader(new InputStreamReader(forward.getInputStream(port)));
    forward.getOutboundStream(port).write("GET / HTTP/1.0\r\n\r\n".getBytes(StandardCharsets.UTF_8));
    forward.getOutboundStream(port).flush();
    check(lines.readLine().startsWith("HTTP/1.0 200"), "answer");
    api.deleteNamespacedPod("serves", NAMESPACE).gracePeriodSeconds(0).execute();
  }

  public static void main(String[] arguments) throws Exception {
    ApiClient client = Config.defaultClient();
    client.setReadTimeout(0);
    CoreV1Api api = new CoreV1Api(client);
    run("crud", () -> crud(client, api));
    run("watch", () -> watch(client, api));
    run("informer", () -> informer(client, api));
    run("leader election", () -> elects(client));
    start(api, "java", "sh", "-c", "echo hello; echo again; exec sleep 1000");
    run("logs", () -> logs(client, api));
    run("exec", () -> executes(client));
    run("copy", () -> copies(client, Path.of(arguments[0])));
    run("port-forward", () -> forwards(client, api));
    api.deleteNamespacedPod("java", NAMESPACE).gracePeriodSeconds(0).execute();
    System.exit(0);
  }
}
