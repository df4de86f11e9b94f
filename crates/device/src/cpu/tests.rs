use super::*;

#[test]
fn memory_is_the_devices_own_and_bounded() {
    let (device, other) = (CpuDevice::new(Some(1)).unwrap(), CpuDevice::new(Some(1)).unwrap());
    device.set_memory_limit(Some(1 << 20));
    let buffer = device.allocate(1000).unwrap();
    device.upload(&buffer, 10, &[1, 2, 3]).unwrap();
    device.fill(&buffer, 11, 1, 9).unwrap();
    let mut back = [0; 3];
    device.download(&buffer, 10, &mut back).unwrap();
    assert_eq!(back, [1, 9, 3]);
    assert!(other.upload(&buffer, 0, &[1]).is_err());
    assert!(matches!(device.allocate(2 << 20), Err(DeviceError::OutOfMemory { .. })));
    let (used, limit) = device.memory();
    assert!((1000..2000).contains(&used) && limit == 1 << 20);
    assert!(device.properties().iter().any(|(name, value)| name == "workers" && value == "1"));
}
