//! The scripts that iPXE runs: the first one asks for that of the machine, which says what to load.

/// Asks for the script of the machine that runs it.
pub fn first(site: &str) -> String {
    format!("#!ipxe\nchain --replace --autofree {site}/machine/${{net0/mac:hexhyp}}.ipxe\n")
}

/// Loads kernel and initramfs, and starts them.
pub fn start(site: &str, command_line: &str) -> String {
    format!(
        "#!ipxe\nkernel {site}/kernel initrd=initrd {command_line}\ninitrd --name initrd {site}/initrd\nboot || shell\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_name_everything_by_its_address() {
        assert_eq!(
            first("http://192.168.1.1:4480"),
            "#!ipxe\nchain --replace --autofree http://192.168.1.1:4480/machine/${net0/mac:hexhyp}.ipxe\n"
        );
        assert!(start("http://h", "root=x").contains("kernel http://h/kernel initrd=initrd root=x\n"));
    }
}
