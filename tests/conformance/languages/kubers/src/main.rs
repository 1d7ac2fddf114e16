//! kube-rs at its main job, against the cluster of KUBECONFIG. Prints "ok NAME" for each scenario.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::{AsyncBufReadExt, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{
    Api, Client, ResourceExt,
    api::{AttachParams, DeleteParams, ListParams, LogParams, Patch, PatchParams, PostParams},
    runtime::{
        Controller, WatchStreamExt, conditions, controller::Action, reflector,
        wait::await_condition, watcher,
    },
};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn map(name: &str, value: &str) -> ConfigMap {
    serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"made": "kube-rs"}}, "data": {"key": value},
    }))
    .unwrap()
}

async fn crud(client: &Client) -> Outcome {
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let made = maps.create(&PostParams::default(), &map("rs", "one")).await?;
    let mut next = made.clone();
    next.data = Some(BTreeMap::from([("key".into(), "two".into())]));
    maps.replace("rs", &PostParams::default(), &next).await?;
    let refused = maps.replace("rs", &PostParams::default(), &next).await;
    assert!(matches!(refused, Err(kube::Error::Api(status)) if status.code == 409));
    let patch = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"other": "applied"}});
    let applied = maps.patch("rs", &PatchParams::apply("rs"), &Patch::Apply(&patch)).await?;
    assert_eq!(applied.data.as_ref().unwrap()["other"], "applied");
    assert_eq!(applied.data.unwrap()["key"], "two");
    let found = maps.list(&ListParams::default().labels("made=kube-rs")).await?;
    assert_eq!(found.items.len(), 1);
    maps.delete("rs", &DeleteParams::default()).await?;
    assert!(maps.get_opt("rs").await?.is_none());
    Ok(())
}

async fn watches(client: &Client) -> Outcome {
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    maps.create(&PostParams::default(), &map("seen", "one")).await?;
    let (reader, writer) = reflector::store();
    let config = watcher::Config::default().labels("made=kube-rs");
    let changes = watcher(maps.clone(), config).default_backoff().reflect(writer).applied_objects();
    let mut changes = std::pin::pin!(changes);
    assert_eq!(changes.try_next().await?.unwrap().name_any(), "seen");
    maps.create(&PostParams::default(), &map("later", "two")).await?;
    assert_eq!(changes.try_next().await?.unwrap().name_any(), "later");
    assert_eq!(reader.state().len(), 2);
    for name in ["seen", "later"] {
        maps.delete(name, &DeleteParams::default()).await?;
    }
    Ok(())
}

async fn controls(client: &Client) -> Outcome {
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    maps.create(&PostParams::default(), &map("wanted", "one")).await?;
    let config = watcher::Config::default().fields("metadata.name=wanted");
    let reconcile = |object: Arc<ConfigMap>, maps: Arc<Api<ConfigMap>>| async move {
        let patch = json!({"metadata": {"annotations": {"seen": object.data.as_ref().unwrap()["key"]}}});
        maps.patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await?;
        Ok::<Action, kube::Error>(Action::await_change())
    };
    let running = Controller::new(maps.clone(), config)
        .run(reconcile, |_, _, _| Action::requeue(Duration::from_secs(1)), Arc::new(maps.clone()))
        .for_each(|_| async {});
    let annotated = await_condition(maps.clone(), "wanted", |found: Option<&ConfigMap>| {
        found.is_some_and(|each| each.annotations().get("seen").is_some_and(|seen| seen == "one"))
    });
    tokio::select! { () = running => {}, result = annotated => { result?; } }
    maps.delete("wanted", &DeleteParams::default()).await?;
    Ok(())
}

async fn pod(client: &Client) -> Result<Api<Pod>, Box<dyn std::error::Error>> {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let script = "echo hello; echo again; exec sleep 1000";
    let pod = serde_json::from_value(json!({
        "metadata": {"name": "rs"},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "x", "command": ["sh", "-c", script]}],
        },
    }))?;
    pods.create(&PostParams::default(), &pod).await?;
    await_condition(pods.clone(), "rs", conditions::is_pod_running()).await?;
    Ok(pods)
}

async fn logs(pods: &Api<Pod>) -> Outcome {
    let params = LogParams { follow: true, ..LogParams::default() };
    let lines = pods.log_stream("rs", &params).await?.lines();
    let found: Vec<String> = lines.take(2).try_collect().await?;
    assert_eq!(found, ["hello", "again"]);
    Ok(())
}

async fn executes(pods: &Api<Pod>) -> Outcome {
    let params = AttachParams::default().stdin(true).stderr(false);
    let mut process = pods.exec("rs", ["sh", "-c", "wc -c; exit 3"], &params).await?;
    let mut input = process.stdin().unwrap();
    let status = process.take_status().unwrap();
    for _ in 0..16 {
        input.write_all(&[b'x'; 65_536]).await?;
    }
    input.shutdown().await?;
    drop(input);
    let mut said = String::new();
    process.stdout().unwrap().read_to_string(&mut said).await?;
    assert_eq!(said.trim(), "1048576");
    assert_eq!(status.await.unwrap().reason.as_deref(), Some("NonZeroExitCode"));
    process.join().await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Outcome {
    let client = Client::try_default().await?;
    crud(&client).await?;
    println!("ok crud");
    watches(&client).await?;
    println!("ok watch");
    controls(&client).await?;
    println!("ok controller");
    let pods = pod(&client).await?;
    logs(&pods).await?;
    println!("ok logs");
    executes(&pods).await?;
    println!("ok exec");
    pods.delete("rs", &DeleteParams::default().grace_period(0)).await?;
    Ok(())
}
