
import io.fabric8.kubernetes.api.model.ConfigMap;
import io.fabric8.kubernetes.api.model.ConfigMapBuilder;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.PodBuilder;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.KubernetesClientException;
import io.fabric8.kubernetes.client.Watcher;
import io.fabric8.kubernetes.client.WatcherException;
import io.fabric8.kubernetes.client.dsl.ExecWatch;
import io.fabric8.kubernetes.client.dsl.PodResource;
import io.fabric8.kubernetes.client.extended.leaderelection.LeaderCallbacks;
import io.fabric8.kubernetes.client.extended.leaderelection.LeaderElectionConfigBuilder;
import io.fabric8.kubernetes.client.extended.leaderelection.resourcelock.LeaseLock;
import io.fabric8.kubernetes.client.informers.ResourceEventHandler;
import io.fabric8.kubernetes.client.informers.SharedIndexInformer;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.Random;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** fabric8 at its main job, against the cluster of KUBECONFIG. Prints "ok NAME" for each scenario. */
public class Scenario {
  static final String NAMESPACE = "default";

  interface Step {
    void run(KubernetesClient client) throws Exception;
  }

  static void check(boolean holds, String what) {
    if (!holds) {
      throw new AssertionError(what);
    }
  }

  static void run(KubernetesClient client, String name, Step step) {
    try {
      step.run(client);
      System.out.println("ok " + name);
    } catch (Throwable error) {
      System.out.println("failed " + name + ": " + error);
      error.printStackTrace();
    }
  }

  static ConfigMap map(String name, String value) {
    return new ConfigMapBuilder()
        .withNewMetadata().withName(name).withNamespace(NAMESPACE).addToLabels("made", "fabric8").endMetadata()
        .addToData("key", value)
        .build();
  }

  static void crud(KubernetesClient client) {
    client.resource(map("typed", "one")).create();
    ConfigMap edited = client.configMaps().inNamespace(NAMESPACE).withName("typed")
        .edit(found -> new ConfigMapBuilder(found).addToData("key", "two").build());
    check(edited.getData().get("key").equals("two"), "edited");
    ConfigMap applied = client.resource(map("typed", "three")).forceConflicts().serverSideApply();
    check(applied.getData().get("key").equals("three"), "applied");
    check(client.configMaps().inNamespace(NAMESPACE).withLabel("made", "fabric8").list().getItems().size() == 1, "listed");
    try {
      client.resource(map("typed", "four")).create();
      check(false, "created twice");
    } catch (KubernetesClientException error) {
      check(error.getCode() == 409, "conflict");
    }
    client.resource(map("typed", "")).delete();
    check(client.resource(map("typed", "")).get() == null, "deleted");
  }

  static void watch(KubernetesClient client) throws Exception {
    BlockingQueue<String> events = new LinkedBlockingQueue<>();
    CompletableFuture<WatcherException> closed = new CompletableFuture<>();
    var watch = client.configMaps().inNamespace(NAMESPACE).withLabel("made", "fabric8").watch(new Watcher<ConfigMap>() {
      @Override
      public void eventReceived(Action action, ConfigMap object) {
        events.add(action + " " + object.getMetadata().getName());
      }

      @Override
      public void onClose(WatcherException cause) {
        closed.complete(cause);
      }

      @Override
      public void onClose() {
        closed.complete(null);
      }
    });
    client.resource(map("seen", "one")).create();
    client.resource(map("seen", "two")).update();
    client.resource(map("seen", "")).delete();
    for (String action : new String[] {"ADDED", "MODIFIED", "DELETED"}) {
      String found = events.poll(20, TimeUnit.SECONDS);
      check((action + " seen").equals(found), action + ": " + found);
    }
    watch.close();
    check(closed.get(20, TimeUnit.SECONDS) == null, "closed");
  }

  static void informer(KubernetesClient client) throws Exception {
    BlockingQueue<String> added = new LinkedBlockingQueue<>();
    client.resource(map("first", "one")).create();
    SharedIndexInformer<ConfigMap> informer = client.configMaps().inNamespace(NAMESPACE).withLabel("made", "fabric8")
        .inform(new ResourceEventHandler<>() {
          @Override
          public void onAdd(ConfigMap object) {
            added.add(object.getMetadata().getName());
          }

          @Override
          public void onUpdate(ConfigMap before, ConfigMap after) {}

          @Override
          public void onDelete(ConfigMap object, boolean unknown) {}
        });
    check("first".equals(added.poll(20, TimeUnit.SECONDS)), "first");
    client.resource(map("second", "two")).create();
    check("second".equals(added.poll(20, TimeUnit.SECONDS)), "second");
    check(informer.getStore().list().size() == 2, "store");
    client.configMaps().inNamespace(NAMESPACE).withLabel("made", "fabric8").delete();
    client.configMaps().inNamespace(NAMESPACE).withName("second").waitUntilCondition(found -> found == null, 20, TimeUnit.SECONDS);
    informer.close();
  }

  static void elects(KubernetesClient client) throws Exception {
    CompletableFuture<Void> leads = new CompletableFuture<>();
    CompletableFuture<Void> stopped = new CompletableFuture<>();
    var config = new LeaderElectionConfigBuilder()
        .withName("fabric8").withLock(new LeaseLock(NAMESPACE, "fabric8", "me"))
        .withLeaseDuration(Duration.ofSeconds(4)).withRenewDeadline(Duration.ofSeconds(3)).withRetryPeriod(Duration.ofSeconds(1))
        .withReleaseOnCancel(true)
        .withLeaderCallbacks(new LeaderCallbacks(() -> leads.complete(null), () -> stopped.complete(null), who -> {}))
        .build();
    var election = client.leaderElector().withConfig(config).build().start();
    leads.get(20, TimeUnit.SECONDS);
    var lease = client.leases().inNamespace(NAMESPACE).withName("fabric8");
    check("me".equals(lease.get().getSpec().getHolderIdentity()), "holder");
    election.cancel(true);
    stopped.get(20, TimeUnit.SECONDS);
    lease.waitUntilCondition(found -> found.getSpec().getLeaseDurationSeconds() == 1, 20, TimeUnit.SECONDS);
  }

  static PodResource pod(KubernetesClient client) {
    Pod pod = new PodBuilder()
        .withNewMetadata().withName("fabric8").withNamespace(NAMESPACE).endMetadata()
        .withNewSpec().withTerminationGracePeriodSeconds(0L)
        .addNewContainer().withName("c").withImage("x").withCommand("sh", "-c", "echo hello; echo again; exec sleep 1000").endContainer()
        .endSpec().build();
    client.resource(pod).create();
    PodResource found = client.pods().inNamespace(NAMESPACE).withName("fabric8");
    found.waitUntilReady(30, TimeUnit.SECONDS);
    return found;
  }

  static void logs(PodResource pod) throws Exception {
    check(pod.getLog().equals("hello\nagain\n"), "log");
    check(pod.tailingLines(1).getLog().equals("again\n"), "tail");
    ByteArrayOutputStream followed = new ByteArrayOutputStream();
    try (var watch = pod.watchLog(followed)) {
      for (int turn = 0; turn < 200 && followed.size() < 12; turn++) {
        Thread.sleep(50);
      }
    }
    check(followed.toString().equals("hello\nagain\n"), "followed: " + followed);
  }

  static void executes(PodResource pod) throws Exception {
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    ByteArrayOutputStream err = new ByteArrayOutputStream();
    try (ExecWatch watch = pod.writingOutput(out).writingError(err).exec("sh", "-c", "echo out; echo err >&2; exit 4")) {
      check(watch.exitCode().get(20, TimeUnit.SECONDS) == 4, "code");
    }
    check(out.toString().equals("out\n") && err.toString().equals("err\n"), "outputs");
    out.reset();
    try (ExecWatch watch = pod.redirectingInput().writingOutput(out).exec("sh", "-c", "read line; echo got $line")) {
      watch.getInput().write("typed\n".getBytes(StandardCharsets.UTF_8));
      watch.getInput().flush();
      check(watch.exitCode().get(20, TimeUnit.SECONDS) == 0, "code");
    }
    check(out.toString().equals("got typed\n"), "input: " + out);
  }

  static void copies(PodResource pod, Path place) throws Exception {
    byte[] content = new byte[1 << 20];
    new Random(1).nextBytes(content);
    Path there = place.resolve("there");
    check(pod.file(there + "/uploaded").upload(new ByteArrayInputStream(content)), "uploaded");
    check(Arrays.equals(Files.readAllBytes(there.resolve("uploaded")), content), "content");
    Path folder = Files.createDirectories(place.resolve("folder/inner"));
    Files.write(folder.resolve("file"), content);
    check(pod.dir(there.toString()).upload(place.resolve("folder")), "folder");
    check(Arrays.equals(Files.readAllBytes(there.resolve("inner/file")), content), "folder's content");
    Path back = place.resolve("back");
    check(pod.file(there + "/uploaded").copy(back), "copied");
    check(Arrays.equals(Files.readAllBytes(back), content), "content that came back");
  }

  public static void main(String[] arguments) {
    Path place = Path.of(arguments[0]);
    try (KubernetesClient client = new KubernetesClientBuilder().build()) {
      run(client, "crud", Scenario::crud);
      run(client, "watch", Scenario::watch);
      run(client, "informer", Scenario::informer);
      run(client, "leader election", Scenario::elects);
      PodResource pod = pod(client);
      run(client, "logs", it -> logs(pod));
      run(client, "exec", it -> executes(pod));
      run(client, "copy", it -> copies(pod, place));
      pod.withGracePeriod(0).delete();
    }
  }
}
