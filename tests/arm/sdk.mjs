// Azure's SDK for JavaScript against a service: prints what it saw.
import { ComputeManagementClient } from "@azure/arm-compute";
import { ClientSecretCredential } from "@azure/identity";

const url = process.env.ARM_URL;
const credential = new ClientSecretCredential("adfs", "operator", "anything", { authorityHost: url });
const client = new ComputeManagementClient(credential, "00000000-0000-0000-0000-000000000001", { endpoint: url });
const names = [];
for await (const vm of client.virtualMachines.listAll()) names.push(vm.name);
await client.virtualMachines.beginRestartAndWait("sample", "web-0", { updateIntervalInMs: 300 });
let code = "";
try {
  await client.virtualMachines.get("sample", "nobody");
} catch (error) {
  code = error.code;
}
console.log(JSON.stringify([names, code]));
