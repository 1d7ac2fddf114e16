// @kubernetes/client-node at its main job, against the cluster of KUBECONFIG. Prints "ok NAME" for each scenario.
import assert from 'node:assert/strict';
import net from 'node:net';
import { PassThrough, Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import * as k8s from '@kubernetes/client-node';

const config = new k8s.KubeConfig();
config.loadFromDefault();
const core = config.makeApiClient(k8s.CoreV1Api);
const namespace = 'default';
const labels = { made: 'client-node' };
const map = (name, key) => ({ metadata: { name, labels }, data: { key } });

async function until(look) {
  for (let turn = 0; turn < 400; turn++) {
    const found = await look();
    if (found) return found;
    await sleep(50);
  }
  throw new Error(`not in time: ${look}`);
}

async function text(stream) {
  let found = '';
  for await (const piece of stream) found += piece;
  return found;
}

async function crud() {
  const made = await core.createNamespacedConfigMap({ namespace, body: map('js', 'one') });
  made.data.key = 'two';
  await core.replaceNamespacedConfigMap({ name: 'js', namespace, body: made });
  await assert.rejects(core.replaceNamespacedConfigMap({ name: 'js', namespace, body: made }), { code: 409 });
  const objects = k8s.KubernetesObjectApi.makeApiClient(config);
  const wanted = { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'js', namespace }, data: { other: 'applied' } };
  const applied = await objects.patch(
    wanted, undefined, undefined, 'client-node', undefined, k8s.PatchStrategy.ServerSideApply,
  );
  assert.deepEqual(applied.data, { key: 'two', other: 'applied' });
  const found = await core.listNamespacedConfigMap({ namespace, labelSelector: 'made=client-node' });
  assert.equal(found.items.length, 1);
  await core.deleteNamespacedConfigMap({ name: 'js', namespace });
}

async function informs() {
  const events = [];
  await core.createNamespacedConfigMap({ namespace, body: map('first', 'one') });
  const list = () => core.listNamespacedConfigMap({ namespace, labelSelector: 'made=client-node' });
  const path = `/api/v1/namespaces/${namespace}/configmaps`;
  const informer = k8s.makeInformer(config, path, list, 'made=client-node');
  for (const verb of ['add', 'update', 'delete']) {
    informer.on(verb, (object) => events.push(`${verb} ${object.metadata.name}`));
  }
  await informer.start();
  await core.createNamespacedConfigMap({ namespace, body: map('second', 'two') });
  await until(() => events.includes('add second'));
  await core.deleteNamespacedConfigMap({ name: 'first', namespace });
  await core.deleteNamespacedConfigMap({ name: 'second', namespace });
  await until(() => events.includes('delete second'));
  assert.ok(events.includes('add first') && events.includes('delete first'));
  await informer.stop();
}

async function pod() {
  const script = 'echo hello; echo again; exec sleep 1000';
  const containers = [{ name: 'c', image: 'x', command: ['sh', '-c', script] }];
  const spec = { containers, terminationGracePeriodSeconds: 0 };
  await core.createNamespacedPod({ namespace, body: { metadata: { name: 'js' }, spec } });
  await until(async () => (await core.readNamespacedPod({ name: 'js', namespace })).status.phase === 'Running');
}

async function logs() {
  assert.equal(await core.readNamespacedPodLog({ name: 'js', namespace }), 'hello\nagain\n');
  const stream = new PassThrough();
  let seen = '';
  stream.on('data', (piece) => (seen += piece));
  const request = await new k8s.Log(config).log(namespace, 'js', 'c', stream, { follow: true });
  await until(() => seen === 'hello\nagain\n');
  request.abort();
}

async function executes() {
  const [out, err] = [new PassThrough(), new PassThrough()];
  const said = [text(out), text(err)];
  const status = await new Promise((resolve, reject) => {
    new k8s.Exec(config)
      .exec(namespace, 'js', 'c', ['sh', '-c', 'read line; echo got $line; echo oh >&2; exit 4'],
        out, err, Readable.from(['typed\n']), false, resolve)
      .catch(reject);
  });
  assert.equal(status.details.causes[0].message, '4');
  out.end();
  err.end();
  assert.deepEqual(await Promise.all(said), ['got typed\n', 'oh\n']);
}

async function forwards(port) {
  const forward = new k8s.PortForward(config);
  const server = net.createServer((socket) => {
    forward.portForward(namespace, 'serves', [port], socket, null, socket);
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const answer = await fetch(`http://127.0.0.1:${server.address().port}/`, { headers: { connection: 'close' } });
  assert.equal(answer.status, 200);
  server.close();
}

async function serves() {
  const script = 'import http.server as h; s = h.ThreadingHTTPServer(("127.0.0.1", 0), h.SimpleHTTPRequestHandler);'
    + 'print(s.server_address[1], flush=True); s.serve_forever()';
  const containers = [{ name: 'c', image: 'x', command: ['python3', '-c', script] }];
  const spec = { containers, terminationGracePeriodSeconds: 0 };
  await core.createNamespacedPod({ namespace, body: { metadata: { name: 'serves' }, spec } });
  await until(async () => (await core.readNamespacedPod({ name: 'serves', namespace })).status.phase === 'Running');
  return Number(await until(async () => (await core.readNamespacedPodLog({ name: 'serves', namespace })).trim()));
}

const steps = { crud, informer: informs, pod, logs, exec: executes, 'port-forward': async () => forwards(await serves()) };
for (const [name, step] of Object.entries(steps)) {
  try {
    await step();
    console.log(`ok ${name}`);
  } catch (error) {
    console.log(`failed ${name}: ${error.stack}`);
  }
}
for (const name of ['js', 'serves']) await core.deleteNamespacedPod({ name, namespace, gracePeriodSeconds: 0 });
process.exit(0);
