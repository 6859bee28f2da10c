//! Durable one-row commits: one actor and 64, with 1 to 1,024 outstanding, and SQLite's own durable commit as the yardstick.

use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use wasmkeep_benches::on_core;
use wasmkeep_benches::store::{Core, peer};

fn durable_write(criterion: &mut Criterion) {
    for actors in [1, 64] {
        let mut group = criterion.benchmark_group(format!("durable_write/{actors}_actors"));
        group.throughput(Throughput::Elements(1)).measurement_time(Duration::from_secs(3)).sample_size(10);
        for outstanding in [1, 8, 64, 256, 1024] {
            group.bench_function(BenchmarkId::from_parameter(outstanding), |bencher| {
                bencher.iter_custom(|commits| {
                    let data = tempfile::tempdir().expect("a directory");
                    on_core(async {
                        let mut core = Core::open(data.path(), actors).await;
                        let leg = core.run_commits(outstanding, commits).await;
                        #[expect(clippy::cast_precision_loss, reason = "a count of a bench")]
                        Duration::from_secs_f64(commits as f64 / leg.rate)
                    })
                });
            });
        }
        group.finish();
    }
    let mut group = criterion.benchmark_group("durable_write/sqlite_wal_full");
    group.sample_size(10);
    group.bench_function("1", |bencher| {
        bencher.iter_custom(|commits| {
            let data = tempfile::tempdir().expect("a directory");
            let leg = peer(data.path(), 1, Duration::from_millis(300));
            #[expect(clippy::cast_precision_loss, reason = "a count of a bench")]
            Duration::from_secs_f64(commits as f64 / leg.rate)
        });
    });
}

criterion_group!(benches, durable_write);
criterion_main!(benches);
