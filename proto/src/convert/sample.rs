//! One sample as a plain message, for watchers; streams use [`crate::frame`].

use evenkeel_model::sample::{Field, Sample};

use crate::v1;

impl From<&Sample> for v1::Sample {
    fn from(sample: &Sample) -> Self {
        Self {
            interval_usec: sample.interval_usec(),
            cpu_usage_usec: sample.get(Field::CpuUsageUsec),
            cpu_periods: sample.get(Field::CpuPeriods),
            cpu_throttled_periods: sample.get(Field::CpuThrottledPeriods),
            cpu_throttled_usec: sample.get(Field::CpuThrottledUsec),
            memory_current_bytes: sample.get(Field::MemoryCurrentBytes),
            memory_working_set_bytes: sample.get(Field::MemoryWorkingSetBytes),
            memory_anon_bytes: sample.get(Field::MemoryAnonBytes),
            swap_bytes: sample.get(Field::SwapBytes),
            cpu_pressure_usec: sample.get(Field::CpuPressureUsec),
            memory_pressure_usec: sample.get(Field::MemoryPressureUsec),
            io_pressure_usec: sample.get(Field::IoPressureUsec),
            oom_kills: sample.get(Field::OomKills),
            pids: sample.get(Field::Pids),
        }
    }
}

impl From<&v1::Sample> for Sample {
    fn from(wire: &v1::Sample) -> Self {
        let mut sample = Self::with_interval_usec(wire.interval_usec);
        for field in Field::ALL {
            let value = match field {
                Field::CpuUsageUsec => wire.cpu_usage_usec,
                Field::CpuPeriods => wire.cpu_periods,
                Field::CpuThrottledPeriods => wire.cpu_throttled_periods,
                Field::CpuThrottledUsec => wire.cpu_throttled_usec,
                Field::MemoryCurrentBytes => wire.memory_current_bytes,
                Field::MemoryWorkingSetBytes => wire.memory_working_set_bytes,
                Field::MemoryAnonBytes => wire.memory_anon_bytes,
                Field::SwapBytes => wire.swap_bytes,
                Field::CpuPressureUsec => wire.cpu_pressure_usec,
                Field::MemoryPressureUsec => wire.memory_pressure_usec,
                Field::IoPressureUsec => wire.io_pressure_usec,
                Field::OomKills => wire.oom_kills,
                Field::Pids => wire.pids,
            };
            if let Some(value) = value {
                sample.set(field, value);
            }
        }
        sample
    }
}
