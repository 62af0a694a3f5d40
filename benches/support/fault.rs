//! What can go wrong midway, done on purpose: a harness that prints figures all the same proves nothing by them.

use std::env;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use serde::Serialize;

/// What fails, once the first rows are through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// The sink answers no more.
    Hang,
    /// The sink takes no more connections and closes those it has.
    Refuse,
    /// The sink resets each connection after a request.
    Reset,
    /// The database is gone.
    Vanish,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Hang, Self::Refuse, Self::Reset, Self::Vanish];

    /// Words of the message by which the harness shows that it knows what is wrong.
    fn noticed_by(self) -> &'static str {
        match self {
            Self::Hang | Self::Refuse | Self::Reset => "did not arrive at the sink",
            Self::Vanish => "the database is gone",
        }
    }

    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// Runs this benchmark once for each fault and shows that it fails, says why, and prints no figure.
pub fn prove_that_each_is_noticed() -> Result<()> {
    let this = env::current_exe()?;
    let runs = Fault::ALL.map(|fault| {
        let mut command = Command::new(&this);
        command.args(["--smoke", "--fault", &fault.name()]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        (fault, command.spawn())
    });
    for (fault, run) in runs {
        let output = run?.wait_with_output()?;
        let name = fault.name();
        let said = String::from_utf8_lossy(&output.stderr);
        let printed = String::from_utf8_lossy(&output.stdout);
        let code = output.status.code().with_context(|| format!("--fault {name} was killed"))?;
        ensure!(code != 0, "a run with --fault {name} passed for a good one");
        ensure!(printed.is_empty(), "a run with --fault {name} printed figures:\n{printed}");
        ensure!(said.contains(fault.noticed_by()), "a run with --fault {name} did not say so:\n{said}");
    }
    Ok(())
}
