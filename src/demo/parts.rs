//! The parts that play, each in a thread of its own: the server, Hermes, the mirror and the baseline.

use std::io;
use std::path::PathBuf;
use std::thread::{self, JoinHandle};

use crossbeam_channel::Sender;
use tokio::sync::oneshot;

use super::baseline::Baseline;
use super::hermes::{self, Hermes};
use super::{DemoError, Happened, Options, SESSION, Teller, act_out, script, seen};
use crate::config::{self, Choice, Config, Mirror};
use crate::pipeline::{Mode, Pipeline};
use crate::serve::{self, Server};

/// Where things are.
#[derive(Clone)]
pub struct Place(pub PathBuf);

impl Place {
    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn database(&self) -> PathBuf {
        self.at("hermes/state.db")
    }
}

/// The embedded server, in its thread.
pub struct Serving {
    pub url: String,
    pub conversation: String,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Serving {
    pub async fn start(port: u16, place: &Place, tell: &Teller) -> Result<Self, DemoError> {
        let (stop, stopped) = oneshot::channel::<()>();
        let (ready, started) = oneshot::channel();
        let (data, tell) = (place.at("conversations.db"), tell.clone());
        let serve = async move {
            let observer = {
                let tell = tell.clone();
                Box::new(move |arrival: serve::Arrival<'_>| {
                    if let Some(seen) = seen(arrival.event).filter(|_| arrival.fresh) {
                        tell.tell(Happened::Arrived { seen, at: arrival.at });
                    }
                })
            };
            let bound = match Server::bind(port, &data).await {
                Ok(mut server) => server.create_conversation().map(|id| (server.observed(observer), id)),
                Err(error) => Err(error),
            };
            let (server, conversation) = match bound {
                Ok(bound) => bound,
                Err(error) => {
                    drop(ready.send(Err(error)));
                    return;
                }
            };
            drop(ready.send(Ok((server.url(), conversation))));
            let stopped = async {
                // Either says that it is over.
                let _ = stopped.await;
            };
            if let Err(error) = server.run(stopped).await {
                tell.tell(Happened::Over(Err(error.into())));
            }
        };
        let runtime = runtime()?;
        let thread = spawn("serve", move || runtime.block_on(serve))?;
        let (url, conversation) = started.await.map_err(|_| DemoError::Ended("server"))??;
        Ok(Self { url, conversation, stop, thread })
    }

    pub fn stop(self) {
        drop(self.stop);
        // That it panicked was said by then.
        let _ = self.thread.join();
    }
}

/// What runs beside the server: Hermes, the mirror and the baseline.
pub struct Parts {
    stop: Sender<()>,
    stop_mirror: oneshot::Sender<()>,
    threads: Vec<JoinHandle<()>>,
}

impl Parts {
    pub fn start(
        options: Options,
        place: &Place,
        server: &Serving,
        tell: &Teller,
    ) -> Result<Self, DemoError> {
        for name in ["hermes", "work", "state"] {
            std::fs::create_dir(place.at(name))?;
        }
        let launched = hermes::now();
        let mut hermes = Hermes::create(&place.database(), SESSION, &place.at("work"))?;
        let (stop, stopped) = crossbeam_channel::bounded::<()>(0);
        let (stop_mirror, mirror_stopped) = oneshot::channel::<()>();
        let mirror = mirror(place, server, launched)?;
        let over = tell.clone();
        let mirroring = spawn("mirror", move || {
            let ended = mirror_until(mirror, mirror_stopped);
            if let Err(error) = ended {
                over.tell(Happened::Over(Err(error)));
            }
        })?;
        let (polled, until) = (tell.clone(), stopped.clone());
        let baseline = Baseline { path: place.database(), session: SESSION };
        let polling = spawn("baseline", move || {
            baseline.run(&until, |row, at| polled.tell(Happened::Polled { row, at }));
        })?;
        let (beats, tell) = (script::script(options.turns, options.pace), tell.clone());
        let writing = spawn("hermes", move || {
            let ended = act_out(&mut hermes, beats, &stopped, &tell);
            tell.tell(Happened::Over(ended.map_err(DemoError::from)));
        })?;
        Ok(Self { stop, stop_mirror, threads: vec![writing, polling, mirroring] })
    }

    pub fn stop(self) {
        drop((self.stop, self.stop_mirror));
        for thread in self.threads {
            // That it panicked was said by then.
            let _ = thread.join();
        }
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name.to_owned()).spawn(run)
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// The real pipeline, with the settings that a person would begin with.
fn mirror(place: &Place, server: &Serving, launched: f64) -> Result<Pipeline, DemoError> {
    let mut config = Config::default();
    config.source.db = Some(place.database());
    config.deliver.base_url.clone_from(&server.url);
    config.deliver.drain_ms = 1_000;
    config.state.dir = Some(place.at("state"));
    config.mirror.push(Mirror {
        conversation: server.conversation.clone(),
        matching: None,
        exclude: Choice::default(),
        db: None,
        session: None,
        workspace: Some(place.at("work")),
        launch_epoch: Some(launched),
        bridge_dir: None,
        sources: config::default_sources(),
        history: None,
        agent_name: None,
    });
    // No other process knows of this server, so its locks go away with it, too.
    Ok(Pipeline::with_locks(config, |_| None, &place.at("state"))?)
}

fn mirror_until(pipeline: Pipeline, stopped: oneshot::Receiver<()>) -> Result<(), DemoError> {
    let stopped = async {
        // Either says that it is over.
        let _ = stopped.await;
    };
    runtime()?.block_on(pipeline.run(Mode::Follow, stopped, std::future::pending()))?;
    Ok(())
}
