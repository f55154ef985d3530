//! The command line of V-FIELD, as a library so that its tests can reach into it.
//!
//! Owns what people type: options, the configuration file, refusals and reports.
//! A daemon runs in [`vfield_daemon`]; the other commands speak to a daemon, or need none.
//! The crate holds no part of the protocol between nodes.

pub mod admission_list;
pub mod args;
#[cfg(feature = "buckets")]
mod bucket;
#[cfg(not(feature = "buckets"))]
#[path = "no_bucket.rs"]
mod bucket;
pub mod commands;
pub mod crash;
pub mod doctor;
pub mod events;
pub mod explain;
pub mod field_key;
mod help;
pub mod images;
mod learned;
pub mod leaving;
mod limit;
#[cfg(feature = "tools")]
mod manual;
pub mod mount;
pub mod nearest;
pub mod original;
pub mod overlay;
pub mod plan;
pub mod publish;
pub mod refusal;
pub mod rubbish;
pub mod secrets;
pub mod settings;
pub mod signature;
pub mod source_file;
mod source_object;
pub mod status;
pub mod tag;
mod top;
mod trace;
pub mod upgrade;
pub mod values;

use args::{Cli, Command, DaemonOptions};
use clap::Parser;
use settings::Settings;
use std::ffi::OsString;
use std::process::ExitCode;
use vfield_console::failure::Failure;
use vfield_console::log::{self, Style};
use vfield_console::volume::Volume;
use vfield_console::{output, stderr};
use vfield_daemon as daemon;
use vfield_daemon::guard::{self, Kind, Role};
use vfield_daemon::keeper;
use vfield_daemon::plan::Plan;
use vfield_netboot as netboot;

/// Runs one command line, program name first; says what went wrong on stderr.
pub fn run(args: Vec<OsString>) -> ExitCode {
    let code = obey(args);
    stderr::finish();
    code
}

fn obey(args: Vec<OsString>) -> ExitCode {
    let failure = match parse(args.clone()) {
        Ok(Some(cli)) => match dispatch(cli, &args) {
            Ok(()) => return ExitCode::SUCCESS,
            Err(failure) => failure,
        },
        Ok(None) => return ExitCode::SUCCESS,
        Err(failure) => failure,
    };
    if !failure.is_quiet() {
        output::complain(&failure);
    }
    failure.exit_code()
}

/// The command line as a value; `None` where it asked for help or the version, which is printed.
fn parse(args: Vec<OsString>) -> Result<Option<Cli>, Failure> {
    let read = |args: Vec<OsString>| match Cli::try_parse_from(&args) {
        Ok(cli) => Ok(Some(cli)),
        Err(error) => refusal::explain(&error, &args).map_or(Ok(None), Err),
    };
    match original::translate(&args) {
        Some(translated) => read(translated?).map_err(original::in_its_words),
        None => read(args),
    }
}

fn dispatch(cli: Cli, args: &[OsString]) -> Result<(), Failure> {
    let volume = cli.volume;
    match cli.command {
        Command::Serve(options) => {
            let config = settings::place(options.daemon.config.as_deref());
            let settings = Settings::load(config.as_deref())?;
            let level = settings.volume(volume);
            let options = settings.complete_serve(*options);
            let plan = |options| Ok(Plan { config, volume, ..plan::serve(options)? });
            run_daemon(&options.daemon.clone(), level, args, || plan(options))
        }
        Command::Join(options) => {
            let config = settings::place(options.daemon.config.as_deref());
            let settings = Settings::load(config.as_deref())?;
            let level = settings.volume(volume);
            let options = settings.complete_join(*options);
            let plan = |options| Ok(Plan { config, volume, ..plan::join(options)? });
            run_daemon(&options.daemon.clone(), level, args, || plan(options))
        }
        Command::Status(options) => commands::status(&options),
        Command::Top(options) => top::run(&options),
        Command::Events(options) => events::run(&options),
        Command::Doctor(options) => doctor::run(&options),
        Command::Explain(options) => explain::run(&options),
        Command::Learned(options) => learned::run(&options),
        Command::Trace(options) => trace::run(&options),
        Command::Limit(options) => limit::run(&options),
        Command::Id(options) => commands::id(&options, volume),
        Command::Sign(options) => signature::sign(&options, volume),
        Command::Pack(options) => vfield_pack::run(&options, volume),
        Command::Publish(options) if options.to.is_some() => bucket::publish(&options, volume),
        Command::Publish(options) => tag::publish(&options),
        #[cfg(feature = "buckets")]
        Command::Bucket(options) => bucket::run(&options),
        Command::Tag(options) => tag::run(&options),
        Command::Mount(options) => mount::run(&options),
        Command::Cat(options) => commands::cat(&options),
        Command::Add(options) => images::add(&options),
        Command::Drop(options) => images::drop(&options),
        Command::Gc(options) => rubbish::collect(&options),
        Command::Pin(options) => rubbish::pin(&options),
        Command::Drain(options) => leaving::drain(&options),
        Command::Leave(options) => leaving::leave(&options),
        Command::Upgrade(options) => upgrade::run(&options),
        Command::Overlay(options) => overlay::run(&options),
        Command::Key(options) => field_key::run(&options.action),
        Command::Booted(options) => netboot::booted::run(&options),
        Command::Netboot(options) => netboot::run(&options, &log::start(Style::choose(false, volume), volume)),
        #[cfg(feature = "tools")]
        Command::Bench(options) => {
            vfield_bench::run(&options, volume, |files| daemon::key_files::KeyFiles::choose(files).read())
        }
        #[cfg(feature = "tools")]
        Command::Completions(options) => manual::completions(&options),
        Command::Help(options) => help::run(&options),
        #[cfg(feature = "tools")]
        Command::Man(options) => manual::man(&options),
    }
}

fn run_daemon(
    options: &DaemonOptions,
    volume: Volume,
    args: &[OsString],
    plan: impl FnOnce() -> Result<Plan, Failure>,
) -> Result<(), Failure> {
    let console = log::start(Style::choose(options.json, volume), volume);
    let kind = if options.root { Some(Kind::Root) } else { options.guard.then_some(Kind::Service) };
    if let Some(kind) = kind
        && guard::stand(args, kind)? == Role::Done
    {
        return Ok(());
    }
    let keeper = keeper::find(kind.is_some());
    let result = plan().and_then(|mut plan| {
        plan.node.keeper = keeper;
        daemon::run(plan, console)
    });
    if let Err(failure) = &result {
        guard::refuse(failure.fact());
    }
    if options.json
        && let Err(failure) = &result
    {
        tracing::error!(target: log::EVENTS, hint = failure.hint_text(), "{}", failure.fact());
        return result.map_err(Failure::already_said);
    }
    result
}
