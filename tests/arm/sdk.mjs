// Azure's SDK for JavaScript against a service: prints what it saw.
import { ComputeManagementClient } from "@azure/arm-compute";
import { ClientSecretCredential } from "@azure/identity";

const url = process.env.ARM_URL;
const credential = new ClientSecretCredential("adfs", "operator", "anything", { authorityHost: url });
const client = new ComputeManagementClient(credential, "00000000-0000-0000-0000-000000000001", { endpoint: url });
const names = [];
for await (const vm of client.virtualMachines.listAll()) names.push(vm.name);
await client.virtualMachines.beginRestartAndWait("sample", "web-0", { updateIntervalInMs: 300 });
// The newest event of the VM, when the wait for it is over: how it is, and who approved it.
const { items } = await (await fetch(`${process.env.CONTROL_URL}/v1/events?limit=1000`)).json();
const newest = items
  .filter((one) => one.resources.includes("web-0"))
  .sort((one, other) => (one.announced_at < other.announced_at ? 1 : -1))[0];
const ended = [newest.type, newest.status, newest.approvals.map((one) => one.by)];
let code = "";
try {
  await client.virtualMachines.get("sample", "nobody");
} catch (error) {
  code = error.code;
}
console.log(JSON.stringify([names, ended, code]));
